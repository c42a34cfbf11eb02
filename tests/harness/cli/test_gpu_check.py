"""The GPU check: parts in order, what they leave, and what happens when time or a part runs out."""

from __future__ import annotations

import json
import re
import tarfile
import threading
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli import gpu_check_command
from harness.cli.gpu_check_command import (
    GpuCheckRequest,
    PartResult,
    _Check,
    _Left,
    check_device,
    run_gpu_check,
)
from harness.cli.gpu_check_figures import RateFigures, figure_lines, read_figures
from harness.clock import FakeClock
from harness.errors import HarnessError, RunFolderError, ScenarioError
from harness.scenario import load_scenario
from tests.builders.real_shape import write_configs

SECOND = 1_000_000_000


def _request(out: Path, *, device: str = "cpu", budget_s: float = 570.0) -> GpuCheckRequest:
    return GpuCheckRequest(out=out, device=device, shape=None, budget_s=budget_s)


class Parts:
    """Stands in for the parts: each takes time on the fake clock, some fail."""

    def __init__(self, clock: FakeClock, *, seconds: float = 40.0, failing: tuple[str, ...] = ()):
        self.clock, self.seconds, self.failing = clock, seconds, failing
        self.ran: list[str] = []

    def __getattr__(self, name: str):
        def part(check: _Check, *arguments: object) -> _Left:
            # What a profile is served with comes after its name.
            self.ran.append("_".join((name, *map(str, arguments[:1]))))
            self.clock.advance_ns(round(self.seconds * SECOND))
            if name in self.failing:
                raise HarnessError("exit code 1: it said so")
            return _Left((f"{name}.json",))

        return part


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _run(
    monkeypatch: pytest.MonkeyPatch, parts: Parts, request: GpuCheckRequest
) -> tuple[PartResult, ...]:
    for name in ("_begin", "_compare_stages", "_bench", "_serve"):
        monkeypatch.setattr(_Check, name, getattr(parts, name))
    return run_gpu_check(request, clock=parts.clock)


def test_equality_comes_first_and_serving_last(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, tmp_path: Path
):
    """Whether it is right, how long steps take, then both profiles under load."""
    parts = Parts(clock)

    results = _run(monkeypatch, parts, _request(tmp_path / "out"))

    assert [
        "_begin", "_compare_stages", "_bench", "_serve_ttfa", "_serve_adaptive",
    ] == parts.ran  # fmt: skip
    assert {("done", 40.0)} == {(each.status, each.seconds) for each in results}


def test_a_gpu_gets_ladder_rungs_as_time_allows(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, tmp_path: Path
):
    """What does not fit into the time left is left out and says so."""
    parts = Parts(clock)

    results = _run(monkeypatch, parts, _request(tmp_path / "out", device="cuda", budget_s=400.0))

    assert "_serve_ladder/without-capture" in parts.ran
    left_out = [each for each in results if each.status == "left out"]
    assert left_out
    assert results[-1] is left_out[-1]
    assert "are needed" in left_out[0].note


def test_a_failed_part_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, tmp_path: Path
):
    """Its reason is kept, and the others still run."""
    parts = Parts(clock, failing=("_bench",))

    results = _run(monkeypatch, parts, _request(tmp_path / "out"))

    (failed,) = (each for each in results if each.status == "failed")
    assert ("engine bench and cost table", "exit code 1: it said so") == (failed.name, failed.note)
    assert parts.ran[-1] == "_serve_adaptive"


def test_the_summary_says_what_random_weights_cannot_tell(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, tmp_path: Path
):
    """Device, shape, parts with their files; and that nothing audible was timed."""
    _run(monkeypatch, Parts(clock), _request(tmp_path / "out"))

    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert ("cpu", "tiny", 5) == (summary["device"], summary["shape"], len(summary["parts"]))
    assert ["_compare_stages.json"] == summary["parts"][1]["files"]
    assert "never an audible time" in summary["weights"]


def test_results_are_never_written_over(clock: FakeClock, tmp_path: Path):
    """A folder that exists is refused before anything runs."""
    with pytest.raises(RunFolderError, match="exists already"):
        run_gpu_check(_request(tmp_path), clock=clock)


@pytest.mark.parametrize(
    ("device", "shape", "said"),
    [
        ("gpu", None, "--device: 'gpu' is not cpu, cuda or cuda:N"),
        ("cuda:-1", None, "--device: 'cuda:-1' is not cpu"),
        ("cpu", "tinny", "--shape: 'tinny' is not one of tiny.*did you mean 'tiny'"),
    ],
)
def test_what_no_part_could_run_on_is_refused_at_once(
    device: str, shape: str | None, said: str, tmp_path: Path
):
    """One line, before a folder is made or a checkpoint written."""
    request = GpuCheckRequest(tmp_path / "out", device=device, shape=shape, budget_s=1.0)

    with pytest.raises(ScenarioError, match=said):
        check_device(request)


def test_rates_on_a_cpu_follow_what_the_bench_saw(clock: FakeClock, tmp_path: Path):
    """10 ms a frame row and 10 ms a codec frame: 45 of both a request, 1.11 requests/s."""
    steps = [
        {"stage": "frame", "rows": 2, "width": 1, "device_ms": 20.0},
        {"stage": "codec", "rows": 1, "width": 4, "device_ms": 40.0},
    ]
    (tmp_path / "bench.json").write_text(json.dumps({"steps": steps}))
    check = _Check(_request(tmp_path), tmp_path, clock)

    assert [0.22, 0.44, 0.78] == check._rates()


def test_a_slow_cpu_still_gets_three_rates(clock: FakeClock, tmp_path: Path):
    """No bench, half a bench, or a hundredth of a request a second: as for one a second."""
    check = _Check(_request(tmp_path), tmp_path, clock)
    without = check._rates()
    (tmp_path / "bench.json").write_text("")
    with_half = check._rates()
    steps = [
        {"stage": stage, "rows": 1, "width": 1, "device_ms": 1000.0} for stage in ("frame", "codec")
    ]
    (tmp_path / "bench.json").write_text(json.dumps({"steps": steps}))

    assert [0.2, 0.4, 0.7] == without == with_half == check._rates()


def test_a_gpu_is_loaded_at_the_rates_others_published(clock: FakeClock, tmp_path: Path):
    """1, 4, 10 and 20 a second, and beyond; fifteen seconds each."""
    check = _Check(_request(tmp_path, device="cuda"), tmp_path, clock)

    scenario = load_scenario(check._write_scenario("serve-ttfa", check._rates()))

    assert (1, 4, 10, 20, 40, 60) == tuple(scenario.arrivals.rates_rps)
    assert 15.0 == scenario.phases.measure_s


def test_noise_is_not_kept_and_so_never_called_audible(clock: FakeClock, tmp_path: Path):
    """The scenario of every part records times and sizes alone."""
    check = _Check(_request(tmp_path, device="cuda"), tmp_path, clock)

    scenario = load_scenario(check._write_scenario("serve-ttfa", [1.0]))

    assert ("serve-ttfa-random-weights", "none") == (scenario.name, scenario.recording.audio)


def test_the_lowest_rates_are_served_where_time_is_short(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, tmp_path: Path
):
    """100 s are enough for three points of 22 s after a start of 30 s; the others are named."""
    check = _Check(_request(tmp_path, device="cuda", budget_s=100.0), tmp_path, clock)
    monkeypatch.setattr(gpu_check_command, "start_child", _no_child)
    monkeypatch.setattr(check, "_process", lambda arguments, **settings: 0)

    left = check._serve("ttfa", check._rates())

    assert [1, 4, 10] == list(load_scenario(tmp_path / "serve-ttfa.yaml").arrivals.rates_rps)
    assert "no time for 20, 40, 60 a second" == left.note


@contextmanager
def _no_child(argv: Sequence[str], **settings: object) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(base_url="http://127.0.0.1:1")


def test_what_there_is_so_far_is_one_archive(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, tmp_path: Path
):
    """Written anew as each part ends, so that a run that is killed leaves the parts before."""
    pack = tmp_path / "kept" / "check.tar.gz"
    request = replace(_request(tmp_path / "out"), pack=pack)
    seen: list[int] = []

    class Watched(Parts):
        def __getattr__(self, name: str):
            part = super().__getattr__(name)

            def looking(check: _Check, *arguments: object) -> _Left:
                seen.append(_num_parts(pack) if pack.is_file() else 0)
                return part(check, *arguments)

            return looking

    _run(monkeypatch, Watched(clock), request)

    assert [0, 1, 2, 3, 4] == seen
    assert 5 == _num_parts(pack)
    assert [pack] == list(pack.parent.iterdir())
    with pytest.raises(ScenarioError, match="exists already; name a new file"):
        run_gpu_check(replace(request, out=tmp_path / "other"), clock=clock)


def _num_parts(pack: Path) -> int:
    with tarfile.open(pack) as packed:
        summary = packed.extractfile("out/summary.json")
        assert summary is not None
        return len(json.load(summary)["parts"])


def test_figures_are_of_the_first_routed_pcm(tmp_path: Path):
    """Median, p95, failures and underruns of each rate; what was never reached stays open."""
    metrics = {
        "ttfp": {"p50": {"value": 12.34}, "p95": {"value": None}},
        "underrun_rate": {"value": {"value": 0.25}},
    }
    point = {
        "rate_rps": 4.0, "n": 60, "outcomes": {"ok": 57, "timeout": 3},
        "validity": {"verdict": "suspect"}, "metrics": metrics,
    }  # fmt: skip
    (tmp_path / "derived").mkdir()
    (tmp_path / "derived" / "metrics.json").write_text(json.dumps({"points": [point]}))

    figures = read_figures(tmp_path)

    assert (RateFigures(4.0, 60, 3, 12.34, None, 0.25, "suspect"),) == figures
    title, _, row = figure_lines(figures)
    assert "first routed PCM after the silent frame" == title.strip()
    assert ["4", "60", "3", "12.3", "-", "25.0%", "suspect"] == row.split()


def test_a_run_without_figures_has_no_table(tmp_path: Path):
    """It was cut short, or could not be read."""
    assert ((), []) == (read_figures(tmp_path), figure_lines(()))


@pytest.mark.parametrize("profile", ["ttfa", "adaptive", "ladder/without-capture"])
def test_the_server_understands_its_command_line(clock: FakeClock, tmp_path: Path, profile: str):
    """Every profile and setting that a part hands to the server."""
    from reference_engine.server.__main__ import parse_arguments

    check = _Check(_request(tmp_path, device="cuda"), tmp_path, clock)
    write_configs(tmp_path / "1.7b", "1.7b")
    arguments = check._server_arguments(profile)

    launch = parse_arguments(arguments[arguments.index("reference_engine.server") + 1 :])

    assert (1, 4) == (launch.profile.assume_silent_frames, launch.profile.guards.min_frames)
    assert "cuda" == launch.device


def test_a_process_may_end_with_a_code_that_is_named(clock: FakeClock, tmp_path: Path):
    """A run with an invalid point is whole and kept; any other code fails the part."""
    check = _Check(_request(tmp_path), tmp_path, clock)
    program = ["-c", "import sys; print('seen'); sys.exit(3)"]

    assert 3 == check._process(program, tolerated=3, save_as="out.txt")
    assert "seen\n" == (tmp_path / "out.txt").read_text()
    with pytest.raises(HarnessError, match="exit code 3: seen"):
        check._process(program)


def test_checkpoints_are_made_beside_the_kernels(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, tmp_path: Path
):
    """Neither waits for the other; a checkpoint that fails fails the part."""
    check = _Check(_request(tmp_path), tmp_path, clock)
    both = threading.Barrier(2, timeout=10)

    def run(arguments: Sequence[str], **settings: object) -> int:
        both.wait()
        if "checkpoint" in arguments:
            raise HarnessError("no space left")
        return 0

    monkeypatch.setattr(check, "_process", run)

    with pytest.raises(HarnessError, match="no space left"):
        check._begin()


def test_whatever_a_gpu_machine_lacks_travels_as_a_wheel():
    """Each requirement of the engine and the harness is there already, or among the wheels."""
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["reference"]]
    recipe = (root / "Makefile").read_text().partition("\ngpu-wheels:")[2].partition("\n\n")[0]

    missing = {re.split(r"[<>=; ]", each)[0] for each in wanted} - {*recipe.split()}

    assert {
        "aiohttp", "matplotlib", "numpy", "pandas", "prometheus-client", "pyarrow", "pyyaml",
        "rich", "safetensors", "scipy", "tokenizers", "torch", "typer", "uvloop",
    } == missing  # fmt: skip
