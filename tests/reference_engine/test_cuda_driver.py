"""The CUDA driver's order of things, against a stand-in for `torch.cuda`; never run on a GPU."""

from __future__ import annotations

import logging
import random

import pytest
import torch

from reference_engine.batch import Catalogue, Shape, Stage
from reference_engine.config import Fp32Math
from reference_engine.errors import ReferenceEngineError, UncapturedShapeError
from reference_engine.graphs import CudaDriver, Graphs, make_driver
from tests.builders.cuda import FakeCuda, Work
from tests.builders.engine import profile

FRAME, CODEC = Shape(Stage.FRAME, 4), Shape(Stage.CODEC, 2, 4)


def _driver(cuda: FakeCuda, **settings: object) -> CudaDriver:
    return CudaDriver("cuda", cuda=cuda, make_host=torch.empty_like, **settings)


def _captured(cuda: FakeCuda, *shapes: Shape, **settings: object) -> CudaDriver:
    driver = _driver(cuda, **settings)
    for shape in shapes:
        driver.capture(shape, lambda: cuda.run("call"))
    cuda.log.clear()
    return driver


def test_a_program_is_run_once_before_it_is_recorded():
    """Compilation and library memory come first, finished, and behind what the host wrote."""
    cuda = FakeCuda()

    _driver(cuda).capture(FRAME, lambda: cuda.run("call"))

    assert [
        ("wait", "main", "host"),
        ("call", "main"),
        ("host waits", "main"),
        ("record into pool", 1, "main"),
        ("call", "main"),
    ] == cuda.log


def test_programs_share_the_pool_of_their_stream_and_no_other():
    """Graphs of one pool share memory, so those that could run at once have two pools."""
    cuda = FakeCuda()
    driver = _driver(cuda)

    for shape in (Shape(Stage.FRAME, 8), FRAME, CODEC, Shape(Stage.PREFILL, 1, 16)):
        driver.capture(shape, lambda: None)

    pools = [entry[1:] for entry in cuda.log if entry[0] == "record into pool"]
    assert [(1, "main"), (1, "main"), (2, "codec"), (1, "main")] == pools


def test_the_codec_and_the_copies_go_first():
    """Their streams have the higher priority (the lower number)."""
    cuda = FakeCuda()
    _driver(cuda)

    assert {"main": 0, "codec": -1, "copies": -1} == {
        name: stream.priority for name, stream in cuda.streams.items()
    }


def test_a_replay_waits_for_the_host_and_the_host_stream_for_it():
    """What was written into slots is seen; what is written next comes after."""
    cuda = FakeCuda()
    driver = _captured(cuda, FRAME)

    driver.replay(FRAME)

    run = cuda.num_runs
    assert [
        ("wait", "main", "host"),
        ("replay", "main"),
        ("wait", "host", f"main#{run}"),
    ] == cuda.log


def test_a_copy_waits_for_its_program_and_the_next_program_for_the_copy():
    """Nobody overwrites what is still being read; the host waits only for what it asks for."""
    cuda = FakeCuda()
    driver = _captured(cuda, CODEC)
    driver.replay(CODEC)
    run = cuda.num_runs
    cuda.log.clear()

    copy = driver.copy_out(torch.arange(4))
    driver.replay(CODEC)

    assert ("wait", "copies", f"codec#{run}") == cuda.log[0]
    assert ("wait", "codec", f"copies#{run}") == cuda.log[2]
    assert not any(entry[0] == "host waits" for entry in cuda.log)
    copy.wait()
    assert ("host waits", f"copies#{run}") == cuda.log[-1]
    assert [0, 1, 2, 3] == copy.array().tolist()


def test_a_frame_does_not_wait_for_the_copy_of_samples():
    """Delivery runs beside the next step."""
    cuda = FakeCuda()
    driver = _captured(cuda, FRAME, CODEC)
    driver.replay(CODEC)
    driver.copy_out(torch.zeros(4))
    cuda.log.clear()

    driver.replay(FRAME)

    assert not any("copies" in str(entry) for entry in cuda.log)


def test_a_stage_that_is_not_captured_is_called_each_time():
    """For the rungs that measure what capture is worth."""
    cuda = FakeCuda()
    driver = _captured(cuda, FRAME, Shape(Stage.PREDICTOR, 4), captured=(Stage.PREDICTOR,))

    driver.replay(FRAME)
    driver.replay(Shape(Stage.PREDICTOR, 4))

    assert len(cuda.graphs) == 1
    assert [("call", "main"), ("replay", "main")] == [
        entry for entry in cuda.log if entry[0] in ("call", "replay")
    ]


def test_waiting_for_a_step_waits_for_the_last_replay():
    """Not for the device as a whole, whose copies go on."""
    cuda = FakeCuda()
    driver = _captured(cuda, FRAME)
    driver.replay(FRAME)

    driver.synchronize()

    assert ("host waits", f"main#{cuda.num_runs}") == cuda.log[-1]


class HostMemory:
    """Takes copies as page-locked memory does: on the stream that is current."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda

    def copy_(self, source: torch.Tensor, *, non_blocking: bool) -> None:
        assert non_blocking
        self._cuda.run("copy")


def _touches(work: Work, lane: str) -> set[tuple[str, str]]:
    """(memory, how) of a piece of work; a copy reads what the lane's last program wrote."""
    if work.what == "replay":
        return {("slots", "writes"), (f"outputs of {work.stream}", "writes")}
    if work.what == "copy":
        return {(f"outputs of {lane}", "reads")}
    return {("slots", "writes")}


@pytest.mark.parametrize("seed", range(20))
def test_no_two_that_touch_the_same_memory_run_at_once(seed: int):
    """Random programs, copies and writes into slots: whoever writes what another touches waits."""
    cuda, draw = FakeCuda(), random.Random(seed)
    driver = CudaDriver("cuda", cuda=cuda, make_host=lambda source: HostMemory(cuda))
    shapes = (FRAME, CODEC, Shape(Stage.PREFILL, 1, 16))
    for shape in shapes:
        driver.capture(shape, lambda: None)
    touched: list[tuple[Work, set[tuple[str, str]]]] = []
    lane = ""
    for _ in range(60):
        step = draw.choice(("replay", "replay", "copy", "write"))
        if step == "replay" or not lane:
            driver.replay(draw.choice(shapes))
            lane = cuda.work[-1].stream
        elif step == "copy":
            driver.copy_out(torch.zeros(1))
        else:
            cuda.run("write")  # admission, on the stream that is current
        touched.append((cuda.work[-1], _touches(cuda.work[-1], lane)))

    for at, (later, uses) in enumerate(touched):
        for earlier, used in touched[:at]:
            shared = {
                memory
                for memory, how in uses
                for other, other_how in used
                if memory == other and "writes" in (how, other_how)
            }
            assert not shared or later.is_after(earlier), (earlier, later, shared)


def test_the_stand_in_notices_a_missing_wait():
    """Two streams that wait for nobody are not ordered; one that waits is."""
    cuda = FakeCuda()
    first, second = (cuda.Stream(device="cuda", priority=0) for _ in range(2))
    for stream in (first, second):
        with cuda.stream(stream):
            cuda.run("something")
    second.wait_stream(first)
    with cuda.stream(second):
        cuda.run("something")

    one, beside, after = cuda.work
    assert (False, True) == (beside.is_after(one), after.is_after(one))


def test_a_shape_that_was_not_captured_is_refused():
    """As on the CPU."""
    with pytest.raises(UncapturedShapeError):
        _captured(FakeCuda(), FRAME).replay(CODEC)


def test_closing_frees_every_graph(caplog: pytest.LogCaptureFixture):
    """After the device is idle; what came back is logged."""
    caplog.set_level(logging.INFO)
    cuda = FakeCuda()
    driver = _captured(cuda, FRAME, CODEC)
    cuda.reserved = 3 << 20

    driver.close()

    assert [True, True] == [graph.is_reset for graph in cuda.graphs]
    assert ("host waits", "everything") == cuda.log[-1]
    assert "3.0 MiB" in caplog.text
    with pytest.raises(UncapturedShapeError):
        driver.replay(FRAME)


def test_capture_says_what_memory_it_took(caplog: pytest.LogCaptureFixture):
    """Before and after, and how many programs."""
    caplog.set_level(logging.INFO)
    cuda = FakeCuda()
    catalogue = Catalogue(profile())

    def make(shape: Shape, inputs: object):
        cuda.reserved += 1 << 20
        return lambda: None

    Graphs(catalogue, _driver(cuda), make, device="cpu").capture()

    count = len(catalogue.shapes)
    assert f"{count} programs captured; device memory 0.0 MiB before, {count}.0 MiB" in caplog.text


@pytest.mark.parametrize(
    ("math", "precision"), [(Fp32Math.EXACT, "highest"), (Fp32Math.TF32, "high")]
)
def test_fp32_is_what_the_profile_says_whatever_the_container_says(
    monkeypatch: pytest.MonkeyPatch, math: Fp32Math, precision: str
):
    """Exact, neither convolutions nor products round their inputs; else both do."""
    is_tf32 = math is Fp32Math.TF32
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not is_tf32)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("reference_engine.graphs.CudaDriver", lambda *given, **settings: "driver")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert "driver" == make_driver("cuda", fp32_math=math)
        assert precision == torch.get_float32_matmul_precision()
        assert is_tf32 == torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_numbered_device_is_the_threads_own_and_must_exist(monkeypatch: pytest.MonkeyPatch):
    """Where kernels go that are launched outside a stream's own block; one line where it is not."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # put back afterwards
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr("reference_engine.graphs.CudaDriver", lambda *given, **settings: "driver")

    assert ["driver"] * 2 == [make_driver("cuda"), make_driver("cuda:1")]
    assert [1] == chosen
    with pytest.raises(ReferenceEngineError, match=r"'cuda:2'.*has 2 CUDA device"):
        make_driver("cuda:2")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_there_is_an_error():
    """It names the device and what to do."""
    with pytest.raises(ReferenceEngineError, match=r"'cuda:0'.*finds no CUDA device"):
        make_driver("cuda:0")
