"""Scripts say exactly what is written when."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.truth.book import accuracy_scripts, accuracy_shares, load_scripts, save_scripts
from harness.truth.script import (
    Container,
    Ending,
    ItemKind,
    Script,
    back_to_back,
    cut_off,
    delayed_end,
    hold_up,
    late,
    merged,
    paced,
    refusal,
    split,
    trickled,
)
from harness.truth.sound import Sound

BASE = paced("base", Sound(duration_ms=400), chunk_ms=100, first_ms=20)


def times_of(script: Script) -> list[tuple[float, str]]:
    """When which items are put, chunks as `a`."""
    letters = {ItemKind.HEAD: "h", ItemKind.CONTAINER: "c", ItemKind.AUDIO: "a", ItemKind.END: "e"}
    return [(s.at_ms, "".join(letters[item.kind] for item in s.put)) for s in script.steps]


def test_paced_reply_comes_in_real_time():
    """The head at once, a chunk every 100 ms, the end with the last."""
    assert [(0, "h"), (20, "a"), (120, "a"), (220, "a"), (320, "ae")] == times_of(BASE)


def test_head_may_wait_for_the_audio():
    """Then one send carries both."""
    script = paced("x", Sound(duration_ms=200), chunk_ms=100, first_ms=50, head_ms=None)

    assert [(50, "ha"), (150, "ae")] == times_of(script)


def test_container_goes_with_the_head():
    """44 bytes without a sample."""
    script = paced("x", Sound(duration_ms=100), chunk_ms=100, container=Container.WAV)

    assert [(0, "hc"), (20, "ae")] == times_of(script)


def test_last_chunk_is_as_short_as_what_is_left():
    """250 ms in chunks of 100."""
    script = paced("x", Sound(duration_ms=250), chunk_ms=100)

    assert [2400, 2400, 1200] == [item.samples for item in script.items if item.samples]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (late(BASE, "x", chunk=1, by_ms=30), [0, 20, 150, 220, 320]),
        (late(BASE, "x", chunk=1, by_ms=150), [0, 20, 270, 270, 320]),
        (hold_up(BASE, "x", chunk=2, by_ms=40), [0, 20, 120, 260, 360]),
        (back_to_back(BASE, "x", chunk=1, count=3), [0, 20, 320, 320, 320]),
        (delayed_end(BASE, "x", by_ms=15), [0, 20, 120, 220, 320, 335]),
    ],
)
def test_changes_move_exactly_what_they_say(script: Script, expected: list[float]):
    """Times of all steps; nothing else changes."""
    assert expected == [step.at_ms for step in script.steps]
    assert BASE.items == script.items


def test_merged_chunks_go_in_one_send():
    """Two of four."""
    script = merged(BASE, "x", chunk=1, count=2)

    assert [(0, "h"), (20, "a"), (220, "aa"), (320, "ae")] == times_of(script)


def test_split_chunk_goes_in_two_sends():
    """500 bytes, and the rest 7 ms later."""
    script = split(BASE, "x", chunk=2, first_bytes=500, gap_ms=7)

    assert [(220, 500), (227, None)] == [(s.at_ms, s.flush_bytes) for s in script.steps[3:5]]


def test_trickled_chunk_goes_in_many():
    """Three small pieces, then the rest."""
    script = trickled(BASE, "x", chunk=0, piece_bytes=10, gap_ms=2, pieces=3)

    assert [(20, 10), (22, 10), (24, 10), (26, None)] == [
        (s.at_ms, s.flush_bytes) for s in script.steps[1:5]
    ]


def test_cut_off_reply_ends_with_its_chunk():
    """And is not whole."""
    script = cut_off(BASE, "x", chunk=1, ending=Ending.RESET)

    assert [(0, "h"), (20, "a"), (120, "a")] == times_of(script)
    assert Ending.RESET is script.steps[-1].ending
    assert (True, False) == (BASE.is_whole, script.is_whole)


def test_refusal_is_a_head_alone():
    """503 after 5 ms."""
    script = refusal("x", Sound(duration_ms=100), at_ms=5)

    assert [(5, "h")] == times_of(script)
    assert 503 == script.status


def test_accuracy_scripts_last_two_seconds_and_all_have_a_share():
    """48,000 samples each, unless they are cut off."""
    scripts = accuracy_scripts()

    assert scripts.keys() == accuracy_shares().keys()
    assert {48_000} == {
        sum(item.samples for item in script.items) for script in scripts.values() if script.is_whole
    }


def test_scripts_survive_the_way_through_a_file(tmp_path: Path):
    """All of them, equal."""
    path = tmp_path / "scripts.json"
    save_scripts(accuracy_scripts(), path)

    assert accuracy_scripts() == load_scripts(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scripts: []", "scripts"),
        ("scripts: [{name: a, sound: {duration_ms: 10}, steps: [{at_ms: 0, putt: []}]}]",
         r"scripts\[0\].steps\[0\].putt: unknown key \(did you mean 'put'\?\)"),
        ("scripts: [{name: a, sound: {duration_ms: 10}, steps: [{at_ms: 5}, {at_ms: 1}]}]",
         "steps go backwards in time"),
        ("scripts: [{name: a, sound: {duration_ms: 10}, steps: "
         "[{at_ms: 0, put: [{kind: head}, {kind: audio, samples: 999}]}]}]",
         "the chunks take 999 samples of a sound of 240"),
        ("scripts: [{name: a, sound: {duration_ms: 10}, steps: [{at_ms: 0, put: [{kind: end}]}]}]",
         "the first item of a reply is its head"),
        ("scripts: [{name: a, sound: {duration_ms: 10}, steps: [{at_ms: 0}]},"
         " {name: a, sound: {duration_ms: 10}, steps: [{at_ms: 0}]}]",
         "the name 'a' is given twice"),
    ],
)  # fmt: skip
def test_mistake_in_a_file_is_told_by_its_path(tmp_path: Path, text: str, said: str):
    """One line."""
    path = tmp_path / "scripts.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=said):
        load_scripts(path)
