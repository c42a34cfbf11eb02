"""What `earwitness gpu-check` does: one short run that says what the engine is worth on a device.

Parts run in order of what would be missed most, each in processes of its own and each writing its
result as it ends, so that a run cut short still leaves something: with `--pack` also as one file,
for machines that let only a few small ones out. A part for which the time left does not suffice is
left out and named.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
import yaml

from harness.child import start_child
from harness.cli.extras import require_reference
from harness.cli.gpu_check_figures import RateFigures, figure_lines, read_figures
from harness.clock import Clock
from harness.config_errors import hint
from harness.errors import HarnessError, ScenarioError
from harness.runner import check_folder

__all__ = ["GpuCheckRequest", "PartResult", "check_device", "run_gpu_check"]

_RANDOM_WEIGHTS = (
    "random weights: the first silent codec frame is assumed, lengths follow from the text; what is"
    " timed is the first routed PCM after the silent frame, never an audible time to first audio"
)
_GPU_RATES = (1.0, 4.0, 10.0, 20.0, 40.0, 60.0)
_MIN_RATES = 2  # below that a load is left out
_RUNG_RATES = (4.0, 20.0)  # one that is easy and one that is not: more rungs in the same time
_CPU_SHARES = (0.2, 0.4, 0.7)  # of the capacity that the bench suggests
_PROFILES = ("ttfa", "adaptive")
# As time allows, what matters most first.
_RUNGS = (
    "with-tf32", "without-capture", "without-cached-codec", "without-fused-frame",
    "without-deadlines", "without-chunk-ramp", "without-prefix-kv", "without-side-stream-eos",
)  # fmt: skip
_MEASURE_S, _WARMUP_S, _DRAIN_S = 15.0, 2.0, 8.0
_POINT_S = _MEASURE_S + _WARMUP_S + 5.0  # a typical drain, and what lies between two points
_START_S = 30.0  # loading, recording every shape, one warm-up request; and the figures afterwards
_READY_S = 180.0
_INVALID_POINT = 3  # exit code of a run that is whole, but of which a point cannot be trusted
# About 5.2 codec frames a word and 6 characters a word with its space.
_FRAMES_PER_CHARACTER = 0.87
_TYPICAL_FRAMES = 45


@dataclass(frozen=True, slots=True)
class GpuCheckRequest:
    """What was asked for on the command line."""

    out: Path
    device: str
    shape: str | None
    budget_s: float
    pack: Path | None = None


@dataclass(frozen=True, slots=True)
class PartResult:
    """One part: whether it ran, how it ended, what it left."""

    name: str
    status: str  # "done", "failed" or "left out"
    seconds: float
    files: tuple[str, ...] = ()
    note: str = ""
    figures: tuple[RateFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class _Left:
    """What a part left, and what has to be said about it."""

    files: tuple[str, ...] = ()
    note: str = ""
    figures: tuple[RateFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """Something to run, the time it may need, and what it writes."""

    name: str
    needs_s: float
    run: Callable[[], _Left]


def check_device(request: GpuCheckRequest) -> None:
    """Refuse what no part could run on, before the first of them.

    Raises:
        ScenarioError: no such device or shape.
        MissingExtraError: the engine's libraries are not installed.
        ReferenceEngineError: the device is not there.
    """
    require_reference("gpu-check")
    from reference_engine.checkpoint.shapes import SHAPES
    from reference_engine.graphs import make_driver

    if re.fullmatch(r"cpu|cuda(:\d{1,3})?", request.device) is None:
        raise ScenarioError(f"--device: {request.device!r} is not cpu, cuda or cuda:N")
    if request.shape is not None and request.shape not in SHAPES:
        raise ScenarioError(
            f"--shape: {request.shape!r} is not one of {', '.join(SHAPES)}"
            f"{hint(request.shape, SHAPES)}"
        )
    make_driver(request.device)


def run_gpu_check(request: GpuCheckRequest, *, clock: Clock) -> tuple[PartResult, ...]:
    """Run every part for which there is time.

    Raises:
        RunFolderError: the folder exists already, or cannot be made.
        ScenarioError: the archive exists already.
    """
    check_folder(request.out)
    if request.pack is not None and request.pack.exists():
        raise ScenarioError(f"--pack: {request.pack} exists already; name a new file")
    request.out.mkdir(parents=True)
    results: list[PartResult] = []
    # Gigabytes of noise that anybody can make again: not among the results.
    with tempfile.TemporaryDirectory(prefix="earwitness-gpu-check-") as checkpoints:
        check = _Check(request, Path(checkpoints), clock)
        for part in check.parts():
            results.append(check.run(part))
            check.write_summary(results)
            if request.pack is not None:
                _pack(request.out, request.pack)
            typer.echo("\n".join(_lines(results[-1])), err=True)
    return tuple(results)


def _lines(result: PartResult) -> list[str]:
    note = f": {result.note}" if result.note else ""
    first = f"{result.status:>8}  {result.seconds:6.1f} s  {result.name}{note}"
    return [first, *figure_lines(result.figures)]


def _pack(folder: Path, archive: Path) -> None:
    """Everything so far in one file; the one before stays until this one is whole."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    growing = archive.with_name(f"{archive.name}.part")
    with tarfile.open(growing, "w:gz") as packed:
        packed.add(folder, arcname=folder.name)
    growing.replace(archive)


class _PartFailedError(HarnessError):
    """A process of a part ended badly."""

    exit_code = 1


class _Check:
    """The parts, and what they share: folder, device, time left, cores."""

    def __init__(self, request: GpuCheckRequest, checkpoints: Path, clock: Clock) -> None:
        self._out, self._device, self._checkpoints = request.out, request.device, checkpoints
        self._is_cpu = request.device == "cpu"
        self._shape = request.shape or ("tiny" if self._is_cpu else "1.7b")
        self._clock = clock
        self._deadline_ns = clock.now_ns() + round(request.budget_s * 1e9)
        self._cores = sorted(os.sched_getaffinity(0))

    def parts(self) -> list[_Part]:
        """In order."""
        return [
            _Part("kernels against their twins, while checkpoints are made", 60, self._begin),
            _Part("captured stages against plain calls", 45, self._compare_stages),
            _Part("engine bench and cost table", 60, self._bench),
            *(self._serving(profile, self._rates) for profile in _PROFILES),
            # What an optimisation is worth on a CPU says nothing about a GPU.
            *(
                self._serving(f"ladder/{rung}", lambda: _RUNG_RATES)
                for rung in (() if self._is_cpu else _RUNGS)
            ),
        ]

    def _serving(self, profile: str, rates: Callable[[], Sequence[float]]) -> _Part:
        """Rates are asked for when the part begins: they may depend on what earlier ones found."""
        needs_s = _START_S + _MIN_RATES * _POINT_S
        return _Part(f"serve {profile}", needs_s, lambda: self._serve(profile, rates()))

    def run(self, part: _Part) -> PartResult:
        """Run one part, or say why not."""
        start_ns = self._clock.now_ns()
        if self._left_s() < part.needs_s:
            why = f"{self._left_s():.0f} s were left, {part.needs_s:.0f} s are needed"
            return PartResult(part.name, "left out", 0.0, note=why)
        try:
            left, status = part.run(), "done"
        except HarnessError as error:
            left, status = _Left(note=str(error)), "failed"
        seconds = round((self._clock.now_ns() - start_ns) / 1e9, 1)
        return PartResult(part.name, status, seconds, left.files, left.note, left.figures)

    def write_summary(self, results: Sequence[PartResult]) -> None:
        """What there is so far; written anew after each part."""
        summary = {
            "schema_version": 1,
            "device": self._device,
            "shape": self._shape,
            "weights": _RANDOM_WEIGHTS,
            "parts": [asdict(each) for each in results],
        }
        (self._out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")

    def _left_s(self) -> float:
        return (self._deadline_ns - self._clock.now_ns()) / 1e9

    # -- parts -------------------------------------------------------------------------------------

    def _begin(self) -> _Left:
        """Both at once: one part needs the device and the other does not."""
        with ThreadPoolExecutor(2) as pool:
            making = pool.submit(self._make_checkpoints)
            kernels = self._compare("kernels.json", ["--kernels"])
            making.result()
        return kernels

    def _make_checkpoints(self) -> None:
        """The shape to serve, and the tiny one, on which codes must agree to the last."""
        for shape in self._shapes:
            self._earwitness("checkpoint", "make", str(self._checkpoints / shape), "--shape", shape)

    @property
    def _shapes(self) -> list[str]:
        return sorted({self._shape, "tiny"})

    def _compare_stages(self) -> _Left:
        folders = [f"--checkpoint={self._checkpoints / shape}" for shape in self._shapes]
        return self._compare("stages.json", folders)

    def _compare(self, name: str, arguments: Sequence[str]) -> _Left:
        environment = {**os.environ, **({"TRITON_INTERPRET": "1"} if self._is_cpu else {})}
        self._process(
            ["-P", "-W", "ignore", "-m", "reference_engine.device_check",
             f"--device={self._device}", *arguments],
            save_as=name,
            environment=environment,
        )  # fmt: skip
        return _Left((name,))

    def _bench(self) -> _Left:
        extent, environment = ["--max-rows=128"], dict(os.environ)
        if self._is_cpu:
            # Few shapes and calls: there the point is that a table comes of it. One thread, as the
            # server has it, so that the capacity read off the table is the server's.
            extent = ["--profile=cpu", "--max-rows=2", "--calls=3"]
            environment["OMP_NUM_THREADS"] = "1"
        self._earwitness(
            "engine-bench", "--json", "--streams=8", "--turns=1000", *extent,
            f"--checkpoint={self._checkpoint}", f"--device={self._device}",
            f"--costs-out={self._out / 'costs.yaml'}",
            save_as="bench.json", environment=environment,
        )  # fmt: skip
        return _Left(("bench.json", "costs.yaml"))

    def _serve(self, profile: str, rates: Sequence[float]) -> _Left:
        """One server under the harness, client and server on cores of their own.

        The lowest rates for which there is time; what had to be left out is noted.
        """
        name = f"serve-{profile.replace('/', '-')}"
        num_points = max(_MIN_RATES, int((self._left_s() - _START_S) // _POINT_S))
        scenario = self._write_scenario(name, rates[:num_points])
        half = max(1, len(self._cores) // 2)
        server_cores, client_cores = self._cores[:half], self._cores[half:] or self._cores
        os.sched_setaffinity(0, server_cores)
        try:
            child = start_child(
                [sys.executable, *self._server_arguments(profile)],
                name="reference", ready_s=min(_READY_S, self._left_s()), clock=self._clock,
                log=self._out / f"{name}-server.txt",
            )  # fmt: skip
            with child as server:
                os.sched_setaffinity(0, client_cores)
                code = self._earwitness(
                    "run", str(scenario), f"--base-url={server.base_url}",
                    f"--out={self._out / name}",
                    save_as=f"{name}.txt", tolerated=_INVALID_POINT,
                )  # fmt: skip
        finally:
            os.sched_setaffinity(0, self._cores)
        notes = ["a point is invalid; its figures must not be used"] if code else []
        if left_out := rates[num_points:]:
            notes.append(f"no time for {', '.join(f'{rate:g}' for rate in left_out)} a second")
        files = (name, scenario.name, f"{name}.txt", f"{name}-server.txt")
        return _Left(files, "; ".join(notes), read_figures(self._out / name))

    def _server_arguments(self, profile: str) -> list[str]:
        settings = [
            "leading_silence=trim", "assume_silent_frames=1", "guards.min_frames=4",
            f"guards.frames_per_character={_FRAMES_PER_CHARACTER}",
        ]  # fmt: skip
        if self._is_cpu:
            settings += ["slots=8", "positions_per_slot=512"]
        return [
            "-P", "-m", "reference_engine.server", "--port=0", "--stop-on-stdin-eof",
            f"--checkpoint={self._checkpoint}", f"--profile={profile}", f"--device={self._device}",
            *(f"--set={each}" for each in settings), *(["--threads=1"] if self._is_cpu else []),
        ]  # fmt: skip

    @property
    def _checkpoint(self) -> Path:
        return self._checkpoints / self._shape

    def _rates(self) -> Sequence[float]:
        """Of the profiles that are held to the goals."""
        if not self._is_cpu:
            return _GPU_RATES
        # A machine too slow for one request a second is loaded as if it were not: three rates with
        # hardly an arrival each would show nothing.
        return [round(share * max(1.0, self._capacity_rps()), 2) for share in _CPU_SHARES]

    def _write_scenario(self, name: str, rates: Sequence[float]) -> Path:
        path = self._out / f"{name}.yaml"
        scenario = {
            "schema": 1,
            "name": f"{name}-random-weights",
            "engines": [{"contract": "reference", "params": {"voice": "ryan", "ignore_eos": True}}],
            "arrivals": {"process": "poisson", "rates_rps": list(rates), "seeds": [1]},
            "phases": {"warmup_s": _WARMUP_S, "measure_s": _MEASURE_S, "drain_s": _DRAIN_S},
            "prompts": {"set": "voice-agent", "tags": ["wer", "short"]},
            "timeouts": {"ready_s": 60.0, "first_audio_s": 30.0, "total_s": 60.0},
            # Noise has no onset: an audible time that is made of it would mean nothing.
            "recording": {"audio": "none"},
        }
        path.write_text(yaml.safe_dump(scenario, sort_keys=False), encoding="utf-8")
        return path

    def _capacity_rps(self) -> float:
        """Requests a second that the benched steps would give."""
        bench = self._out / "bench.json"
        if not bench.is_file():
            return 1.0
        try:
            steps: list[dict[str, Any]] = json.loads(bench.read_text())["steps"]
        except json.JSONDecodeError:  # the part failed; what it printed is kept all the same
            return 1.0
        frame_ms = min(s["device_ms"] / s["rows"] for s in steps if s["stage"] == "frame")
        codec_ms = min(
            s["device_ms"] / (s["rows"] * s["width"]) for s in steps if s["stage"] == "codec"
        )
        return float(1000 / (_TYPICAL_FRAMES * (frame_ms + codec_ms)))

    # -- processes ---------------------------------------------------------------------------------

    def _earwitness(self, *arguments: str, **settings: Any) -> int:
        """A command of this program; the settings are those of `_process`."""
        return self._process(["-P", "-m", "harness.cli", *arguments], **settings)

    def _process(
        self,
        arguments: Sequence[str],
        *,
        save_as: str | None = None,
        environment: dict[str, str] | None = None,
        tolerated: int = 0,
    ) -> int:
        """Run Python within the time left; keep what it printed, also where it failed.

        Returns:
            The exit code: 0, or the one that is tolerated.
        """
        try:
            done = subprocess.run(
                [sys.executable, *arguments],
                capture_output=True,
                text=True,
                env=environment,
                timeout=max(1.0, self._left_s()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _PartFailedError(f"{arguments[-1]}: did not end in the time left") from None
        if save_as is not None:
            (self._out / save_as).write_text(done.stdout, encoding="utf-8")
        if done.returncode not in (0, tolerated):
            said = done.stderr.strip()[-500:] or done.stdout.strip()[-500:]
            raise _PartFailedError(f"exit code {done.returncode}: {said}")
        return done.returncode
