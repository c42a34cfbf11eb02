"""How a run is told on stderr: moving lines for people, whole lines for logs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from engines.base import EngineInfo
from harness.cli.progress import CountLine, ProgressLine
from harness.dispatcher import Progress
from harness.plan import RunPlan, plan_run
from harness.scenario import parse_scenario
from tests.builders.voices import short_run


class _Stream(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def plan() -> RunPlan:
    """One point of 0.1 + 0.3 s of load and 1 s of drain."""
    data = short_run("http://127.0.0.1:9")
    return plan_run(parse_scenario(data, where="t", base_dir=Path.cwd()))


def _progress(elapsed_s: float) -> Progress:
    return Progress(
        point_id="p",
        elapsed_s=elapsed_s,
        num_planned=8,
        num_arrived=4,
        num_finished=2,
        num_failed=1,
        num_in_flight=2,
    )


def test_a_log_gets_one_whole_line_a_point(plan: RunPlan):
    """No control characters, and nothing for progress in between."""
    stream = _Stream(is_terminal=False)
    line = ProgressLine(plan, stream)
    line.on_point(plan.points[0], plan.schedules[0])
    line.on_progress(_progress(0.2))
    line.close()

    point_id = plan.points[0].point_id
    assert f"point 1 of 1: {point_id}, 6 requests and 2 of warm-up\n" == stream.getvalue()


def test_a_terminal_gets_one_line_that_moves(plan: RunPlan):
    """Counts, a bar over load and drain, and the phase."""
    stream = _Stream(is_terminal=True)
    line = ProgressLine(plan, stream)
    line.on_point(plan.points[0], plan.schedules[0])
    line.on_progress(_progress(0.35))
    line.on_progress(_progress(0.7))

    last = stream.getvalue().split("\r\x1b[K")[-1]
    assert "[##########..........] 1/1 p drain: 4/8 sent, 2 in flight, 1 failed" == last
    assert "p load: 4/8" in stream.getvalue()


def test_the_same_reason_to_wait_is_told_once(plan: RunPlan):
    """With the limit, and again only when the reason changes."""
    stream = _Stream(is_terminal=False)
    line = ProgressLine(plan, stream)
    for reason in ("refused", "refused", "503"):
        line.on_waiting("e", reason)

    assert [
        "e: waiting up to 10 s until it is ready: refused",
        "e: waiting up to 10 s until it is ready: 503",
    ] == stream.getvalue().splitlines()


def test_a_server_that_cannot_tell_who_it_is_gets_a_warning(plan: RunPlan):
    """Its figures may be those of any server."""
    stream = _Stream(is_terminal=False)
    info = EngineInfo("earwitness-piper", is_ready=True, is_match=None)
    ProgressLine(plan, stream).on_engine("earwitness-piper", info)

    assert "warning: this server cannot tell who it is" in stream.getvalue()


def test_a_count_on_a_terminal_is_one_line_that_moves():
    """Rewritten for each, ended once."""
    stream = _Stream(is_terminal=True)
    line = CountLine("hearing", stream)
    line.show(1, 4)
    line.show(4, 4)
    line.close()

    first, last = stream.getvalue().split("\r\x1b[K")[1:]
    assert "hearing [#####...............] 1/4" == first
    assert "hearing [####################] 4/4\n" == last


def test_a_count_in_a_log_is_told_eight_times():
    """Whole lines, at each eighth: a minute of work does not look like a hang."""
    stream = _Stream(is_terminal=False)
    line = CountLine("hearing", stream)
    for done in range(1, 97):
        line.show(done, 96)
    line.close()

    counts = [text.rsplit(" ", 1)[1] for text in stream.getvalue().splitlines()]
    assert [f"{n}/96" for n in range(12, 97, 12)] == counts


def test_a_short_count_in_a_log_is_told_each_time():
    """Fewer than eight things to do are eight lines at most."""
    stream = _Stream(is_terminal=False)
    line = CountLine("hearing", stream)
    for done in range(1, 4):
        line.show(done, 3)

    assert 3 == len(stream.getvalue().splitlines())


def test_a_count_in_steps_is_told_whenever_it_passes_an_eighth():
    """Steps of 100 of 1,000 hit no eighth but 500 and 1,000."""
    stream = _Stream(is_terminal=False)
    line = CountLine("measuring", stream)
    for done in range(100, 1_001, 100):
        line.show(done, 1_000)

    counts = [text.rsplit(" ", 1)[1] for text in stream.getvalue().splitlines()]
    assert [f"{n}/1000" for n in (200, 300, 400, 500, 700, 800, 900, 1000)] == counts
