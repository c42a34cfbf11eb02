"""Scripts by name: those that `earwitness accuracy` runs, and files of a user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from harness.config_errors import read_yaml, validate
from harness.errors import ScenarioError
from harness.scenario_sections import Section
from harness.truth.script import (
    Container,
    Ending,
    Script,
    back_to_back,
    cut_off,
    delayed_end,
    hold_up,
    late,
    merged,
    paced,
    split,
    trickled,
)
from harness.truth.sound import Sound, Voice

__all__ = ["accuracy_scripts", "accuracy_shares", "by_name", "load_scripts", "save_scripts"]

_REPLY_MS = 2_000.0


def _named_once(scripts: tuple[Script, ...]) -> tuple[Script, ...]:
    seen: set[str] = set()
    for script in scripts:
        if script.name in seen:
            raise ValueError(f"the name {script.name!r} is given twice")
        seen.add(script.name)
    return scripts


class _File(Section):
    scripts: Annotated[tuple[Script, ...], Field(min_length=1), AfterValidator(_named_once)]


def by_name(scripts: Iterable[Script]) -> dict[str, Script]:
    """A mapping from name to script."""
    return {script.name: script for script in scripts}


def load_scripts(path: Path) -> dict[str, Script]:
    """Scripts from a YAML (or JSON) file: `scripts: [{name, sound, steps, ...}]`.

    Raises:
        ScenarioError: unreadable, or a mistake in it; one line with the path of the key.
    """
    data = read_yaml(path, error=ScenarioError)
    found = validate(_File, data, where=str(path), error=ScenarioError)
    return by_name(found.scripts)


def save_scripts(scripts: Mapping[str, Script], path: Path) -> None:
    """Write them as JSON, which `load_scripts` reads."""
    path.write_text(_File(scripts=tuple(scripts.values())).model_dump_json(), encoding="utf-8")


def accuracy_scripts() -> dict[str, Script]:
    """Replies of 2 s in real time: smooth ones, and one for every trick of the wire.

    Most onsets are abrupt: the first audible sample is one sample, so the truth is exact.
    """
    return by_name([*_smooth(), *_disturbed(), *_broken()])


def accuracy_shares() -> dict[str, int]:
    """How often each of `accuracy_scripts` occurs: six of seven replies are smooth."""
    shares = {script.name: 8 for script in _smooth()}
    shares |= {script.name: 2 for script in _disturbed()}
    return shares | {script.name: 1 for script in _broken()}


def _tone(lead_ms: float = 0.0, **fields: object) -> Sound:
    return Sound.model_validate({"duration_ms": _REPLY_MS, "lead_ms": lead_ms, **fields})


def _smooth() -> list[Script]:
    """On time throughout; what differs is where and how the sound begins."""
    sounds = {
        "at-once": _tone(),
        "after-37ms": _tone(37.0, frequency_hz=220.0),
        "after-120ms": _tone(120.4, level_dbfs=-12.0),
        "after-400ms": _tone(400.0, level_dbfs=-30.0, frequency_hz=1_000.0),
        "after-1s": _tone(1_000.0),
        "noise-voice": _tone(160.0, voice=Voice.NOISE, level_dbfs=-20.0),
        "over-noise": _tone(250.0, floor_dbfs=-55.0),
        "after-clicks": _tone(300.0, clicks_ms=(5.0, 90.0, 180.0)),
        "over-dc": _tone(200.0, dc=0.25),
        "dithered": _tone(90.0, is_dithered=True),
        "rising-20ms": _tone(150.0, rise_ms=20.0),
        "rising-60ms": _tone(80.0, rise_ms=60.0, level_dbfs=-15.0),
    }
    scripts = [paced(name, sound) for name, sound in sounds.items()]
    plain = _tone(60.0)
    scripts += [
        paced("slow-first", plain, first_ms=350.0),
        paced("head-with-audio", plain, first_ms=90.0, head_ms=None),
        paced("short-chunks", plain, chunk_ms=20.0),
        paced("ahead", plain, gap_ms=40.0),
        paced("wav", plain, container=Container.WAV, first_ms=120.0),
    ]
    return scripts


def _disturbed() -> list[Script]:
    """Late, bunched, cut up, held up: what a player would or would not hear."""
    base = paced("base", _tone(60.0))
    return [
        late(base, "late-3ms", chunk=7, by_ms=3.0),
        late(base, "late-15ms", chunk=4, by_ms=15.0),
        late(base, "late-60ms", chunk=12, by_ms=60.0),
        late(base, "late-250ms", chunk=9, by_ms=250.0),
        late(paced("base", _tone(400.0)), "late-before-sound", chunk=3, by_ms=120.0),
        hold_up(base, "held-up-100ms", chunk=10, by_ms=100.0),
        hold_up(late(base, "base", chunk=5, by_ms=30.0), "two-stalls", chunk=15, by_ms=45.0),
        back_to_back(base, "three-at-once", chunk=8, count=3),
        merged(base, "three-in-one", chunk=8, count=3),
        split(base, "split-chunk", chunk=6, first_bytes=1_001, gap_ms=12.0),
        trickled(base, "trickled", chunk=11, piece_bytes=333, gap_ms=2.0, pieces=8),
        delayed_end(base, "end-by-itself", by_ms=40.0),
        delayed_end(base, "end-close-behind", by_ms=0.0),
    ]


def _broken() -> list[Script]:
    """Replies that never come to their end."""
    base = paced("base", _tone(60.0))
    return [
        cut_off(base, "reset", chunk=12, ending=Ending.RESET),
        cut_off(base, "cut-off", chunk=18, ending=Ending.CLOSE),
    ]
