"""What a run says about itself, as names and texts: conditions, engines, machine, commands."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.evidence import VOLATILE
from analysis.metrics.delivery import COALESCED_GAP_MS
from analysis.report.model import Fact
from analysis.report.words import count, rate, share
from engines.installing import install_command
from harness.records import RunKind, RunRecord, RunStatus

__all__ = ["commands", "conditions", "engine_facts", "environment", "is_identity", "notes"]

# Half of the gaps of a typical reply: a few merged reads are usual on any network.
_COALESCED_SHARE = 0.5


def conditions(metrics: Mapping[str, Any], run: RunRecord | None) -> tuple[Fact, ...]:
    """What holds for every figure of the page."""
    found = [
        Fact("Arrivals", f"open loop, {_arrivals(metrics, run)}"),
        Fact("Start rule", str(metrics["start_rule"])),
        Fact("Stamps", _stamps(metrics)),
    ]
    warmup = sum(int(point["num_warmup_excluded"]) for point in metrics["points"])
    found.append(Fact("Warm-up", f"{count(warmup, 'request')} stored and left out of all figures"))
    cancelled = sum(int(p["outcomes"].get("cancelled", 0)) for p in metrics["points"])
    cancelled -= _num_interrupted(metrics)
    if cancelled:
        found.append(Fact("Cancelled", f"{count(cancelled, 'request')} by the scenario"))
    if run and (prompts := run.prompts or run.scenario.get("prompts")):
        found.append(Fact("Prompts", _prompts(prompts)))
    return tuple(found)


def _num_interrupted(metrics: Mapping[str, Any]) -> int:
    return sum(int(point.get("num_interrupted", 0)) for point in metrics["points"])


def _stamps(metrics: Mapping[str, Any]) -> str:
    if metrics["kind"] == RunKind.SIMULATED:
        return "a model's clock"
    return f"{metrics['stamp_source']} receive times"


def _arrivals(metrics: Mapping[str, Any], run: RunRecord | None) -> str:
    arrivals = (run.scenario.get("arrivals") if run else None) or {}
    rates = sorted({point["rate_rps"] for point in metrics["points"]})
    seeds = sorted({point["seed"] for point in metrics["points"]})
    words = f"{arrivals.get('process', 'planned')}, "
    words += count(len(rates), "rate")
    if rates:
        words += f" from {rate(rates[0])} to {rate(rates[-1])}" if len(rates) > 1 else ""
    return f"{words}, seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


def _prompts(prompts: Mapping[str, Any]) -> str:
    name = prompts.get("name") or prompts.get("set") or "unnamed"
    tags = prompts.get("tags")
    size = prompts.get("num_prompts")
    parts = [str(name)]
    if size is not None:
        parts.append(count(int(size), "text"))
    if tags:
        parts.append(f"tags {', '.join(map(str, tags))}")
    if digest := prompts.get("sha256"):
        parts.append(f"sha256 {str(digest)[:12]}")
    return ", ".join(parts)


def engine_facts(engine: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Who answered, at which address, with which settings."""
    return tuple(
        Fact(name.replace("_", " "), _text(value))
        for name, value in engine.items()
        if name != "name" and value not in (None, "", [], {})
    )


def environment(run: RunRecord) -> tuple[Fact, ...]:
    """Machine, versions, revision, clock and engines."""
    found = [Fact("created", run.created_utc), Fact("status", str(run.status))]
    for title, mapping in (
        ("revision", run.revision),
        ("machine", run.machine),
        ("versions", run.versions),
    ):
        found += [
            Fact(f"{title}: {name}", text) for name, text in _flat(mapping) if text not in ("", "–")
        ]
    for engine in run.engines:
        found += [
            Fact(f"{engine.get('name')}: {fact.name}", fact.text) for fact in engine_facts(engine)
        ]
    return tuple(found)


def is_identity(name: str) -> bool:
    """Whether a fact of the environment says which machine it was, or which Python ran on it."""
    if name == "versions: python":
        return True
    title, _, key = name.partition(": ")
    return title == "machine" and key.partition(".")[0] not in VOLATILE


def commands(run: RunRecord) -> tuple[str, ...]:
    """The exact commands that made the run, as a shell would take them, in order."""
    sittings = (run.command, *(resume.get("command") for resume in run.resumes))
    return tuple(shlex.join(map(str, command)) for command in sittings if command)


def notes(metrics: Mapping[str, Any], run: RunRecord | None) -> tuple[str, ...]:
    """What a reader must know before believing a figure."""
    found = [str(note) for note in run.notes] if run else []
    is_complete = metrics["status"] == RunStatus.COMPLETE
    if not is_complete:
        found.append(f"The run is {metrics['status']}: some planned requests are not in it.")
    unfinished = [point.point_id for point in run.points if not point.is_complete] if run else []
    if unfinished and is_complete:
        found.append(f"Unfinished points: {', '.join(unfinished)}.")
    if interrupted := _num_interrupted(metrics):
        found.append(
            f"{count(interrupted, 'request')} in flight at the interrupt: recorded as cancelled, "
            "counted as not reached and as failed."
        )
    unrecorded = sum(int(point["num_unrecorded"]) for point in metrics["points"])
    if unrecorded:
        found.append(f"{count(unrecorded, 'planned request')} left no record.")
    if metrics["start_rule"] != "immediate":
        found.append(f"The player's start rule is {metrics['start_rule']}, not immediate.")
    return (*found, *_audio(metrics), *_coalesced(metrics))


def _audio(metrics: Mapping[str, Any]) -> Iterator[str]:
    """What compressed audio hides: its timing, its priming, or all of it."""
    bases: dict[str, set[str]] = {}
    untrimmed: Counter[str] = Counter()
    undecoded: Counter[str] = Counter()
    for point in metrics["points"]:
        audio = point.get("audio", {})
        bases.setdefault(point["engine"], set()).update(audio.get("duration_bases", {}))
        untrimmed[point["engine"]] += audio.get("num_untrimmed", 0)
        undecoded[point["engine"]] += audio.get("num_undecoded", 0)
    if len({frozenset(found) for found in bases.values() if found}) > 1:
        told = ", ".join(f"{engine} by {'/'.join(sorted(b))}" for engine, b in bases.items() if b)
        yield (
            f"Samples are timed differently ({told}), so times to the first sound of these engines "
            "are not on the same footing."
        )
    for engine, num in (+untrimmed).items():
        yield (
            f"{engine}: {num:,} of its replies do not state their encoder's delay; it is untrimmed"
            " and counts as leading silence."
        )
    for engine, num in (+undecoded).items():
        yield (
            f"{engine}: {num:,} of its replies are compressed and were not decoded, so have no "
            f"audio figures; {install_command('codecs')}, and report again."
        )


def _coalesced(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Who delivered in bursts: short gaps between chunks then say nothing good about a server."""
    found: dict[str, list[tuple[float, float]]] = {}
    for point in metrics["points"]:
        part, size = (_median(point, name) for name in ("coalesced_share", "bytes_per_read"))
        if part is not None and size is not None and part >= _COALESCED_SHARE:
            found.setdefault(point["engine"], []).append((part, size))
    for engine, points in found.items():
        part, size = max(points)
        yield (
            f"{engine}: coalesced: in the median reply up to {share(part)} of the gaps between "
            f"chunks are under {COALESCED_GAP_MS:g} ms ({size:,.0f} bytes per read, "
            f"{count(len(points), 'point')}). Chunks were held back and came in bursts: look at "
            "first sound and stalls, a short gap is no merit here."
        )


def _median(point: Mapping[str, Any], name: str) -> float | None:
    found: float | None = point["metrics"].get(name, {}).get("p50", {}).get("value")
    return found


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested mappings as dotted names."""
    for name, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        elif value not in (None, [], {}):
            yield f"{prefix}{name}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Sequence) and all(isinstance(item, str | int | float) for item in value):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False, default=str)
