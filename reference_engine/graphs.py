"""Captured programs behind one interface: static buffers, padding, and what may be replayed.

A program reads and writes fixed addresses. Before a replay the batch is written into the input
buffers, padding rows included (slot 0, count 0); after it the output is copied out, because the
next replay writes the same memory. A shape that was never captured is an error, never a slower
path taken in silence.

`CpuDriver` keeps every one of these rules with plain calls on the same buffers, so they are tested
without a GPU. Nothing outside this module knows whether a program is captured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt
import torch
from torch import Tensor

from reference_engine.batch import Batch, Catalogue, Shape, Stage
from reference_engine.config import Fp32Math
from reference_engine.errors import ReferenceEngineError, UncapturedShapeError

__all__ = [
    "CpuDriver",
    "CudaDriver",
    "GraphDriver",
    "Graphs",
    "HostCopy",
    "ProgramInputs",
    "StepInputs",
    "make_driver",
]

_LOG = logging.getLogger(__name__)
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ProgramInputs:
    """What a program of one shape reads; views of the static buffers, [rows] int64 each.

    slots: whose rows; padding rows name slot 0. counts: real prompt tokens or codec frames of each
    row, 0 for padding. starts: first codec frame of each row.
    """

    slots: Tensor
    counts: Tensor
    starts: Tensor


Program = Callable[[], None]


class HostCopy(Protocol):
    """A copy of device memory on its way to the host; the source may be overwritten at once."""

    def wait(self) -> None:
        """Block until it is here. May be called from another thread."""
        ...

    def array(self) -> npt.NDArray[Any]:
        """What was copied. Only after `wait`."""
        ...


class GraphDriver(Protocol):
    """How programs are kept and run. One driver per device.

    is_recorded: whether programs are recorded, so that everything they read from Python is fixed.
    """

    @property
    def is_recorded(self) -> bool:
        """See the class."""
        ...

    def capture(self, shape: Shape, program: Program) -> None:
        """Keep a program, to be run by `replay` as often as wanted."""
        ...

    def replay(self, shape: Shape) -> None:
        """Run the program of a shape.

        Raises:
            UncapturedShapeError: there is none.
        """
        ...

    def copy_out(self, source: Tensor) -> HostCopy:
        """Begin to copy what the last replay wrote, beside whatever runs next."""
        ...

    def synchronize(self) -> None:
        """Block until the last replay is done; raises what went wrong in it."""
        ...

    def memory_bytes(self) -> int:
        """Device memory in use; 0 where nobody counts."""
        ...

    def close(self) -> None:
        """Free everything that was captured."""
        ...


class _CopiedArray:
    """A copy that is here already."""

    def __init__(self, source: Tensor) -> None:
        self._array = source.to("cpu", copy=True).numpy()

    def wait(self) -> None:
        """It is here."""

    def array(self) -> npt.NDArray[Any]:
        """The copy."""
        return self._array


class CpuDriver:
    """Plain calls. The program is the same, the buffers are the same, nothing is recorded."""

    is_recorded = False

    def __init__(self) -> None:
        self._programs: dict[Shape, Program] = {}

    def capture(self, shape: Shape, program: Program) -> None:
        """Keep a program."""
        self._programs[shape] = program

    def replay(self, shape: Shape) -> None:
        """Call it."""
        program = self._programs.get(shape)
        if program is None:
            raise UncapturedShapeError(f"{shape} was never captured")
        program()

    def copy_out(self, source: Tensor) -> HostCopy:
        """Copy now."""
        return _CopiedArray(source)

    def synchronize(self) -> None:
        """A plain call is done when it returns."""

    def memory_bytes(self) -> int:
        """Nobody counts."""
        return 0

    def close(self) -> None:
        """Forget the programs, and with them what they hold on to."""
        self._programs.clear()


class _PinnedCopy:
    """A copy into page-locked memory, here once its event has passed."""

    def __init__(self, host: Tensor, event: Any) -> None:
        self._host, self._event = host, event

    def wait(self) -> None:
        """Block until the event has passed; other threads run meanwhile."""
        self._event.synchronize()

    def array(self) -> npt.NDArray[Any]:
        """The copy; its memory is used again only when nobody holds the array."""
        array: npt.NDArray[Any] = self._host.numpy()
        return array


def _page_locked_like(source: Tensor) -> Tensor:
    """Host memory for a copy. PyTorch keeps what was freed and hands it out again, so that after
    the first few copies nothing is locked or allocated any more."""
    return torch.empty(source.shape, dtype=source.dtype, pin_memory=True)


class _Lane:
    """A stream and the programs that run on it, one after the other.

    Graphs of one memory pool use the same memory, which is safe only while no two of them run at
    once: hence a pool a lane. done: passed when the last program has ended. copied: passed when
    the last copy of what a program wrote has ended.
    """

    def __init__(self, cuda: Any, device: torch.device, *, priority: int) -> None:
        self.stream = cuda.Stream(device=device, priority=priority)
        self.pool = cuda.graph_pool_handle()
        self.done = cuda.Event()
        self.copied: Any = None


class CudaDriver:
    """CUDA graphs, recorded once and replayed.

    The codec has a high-priority stream of its own, all other programs share one, and copies to
    the host have a third, so that row flags and samples travel while the next step runs. Streams
    are ordered by events alone. What the owner writes into slots between two steps goes through
    the current stream, which every replay waits for and which waits for every replay.

    Args:
        device: the CUDA device.
        captured: stages that are recorded; programs of the others are called each time.
        cuda: PyTorch's module of that name, or one that behaves like it.
        make_host: page-locked host memory of a tensor's shape.
    """

    is_recorded = True

    def __init__(
        self,
        device: torch.device | str,
        *,
        captured: Iterable[Stage] = tuple(Stage),
        cuda: Any = torch.cuda,
        make_host: Callable[[Tensor], Tensor] = _page_locked_like,
    ) -> None:
        self._cuda, self._make_host = cuda, make_host
        self._captured = frozenset(captured)
        self._device = torch.device(device)
        self._main = _Lane(cuda, self._device, priority=0)
        self._codec = _Lane(cuda, self._device, priority=-1)  # lower is more urgent
        self._copies = cuda.Stream(device=self._device, priority=-1)
        self._last: _Lane | None = None
        self._programs: dict[Shape, Program] = {}
        self._graphs: list[Any] = []

    def _lane(self, shape: Shape) -> _Lane:
        return self._codec if shape.stage is Stage.CODEC else self._main

    def capture(self, shape: Shape, program: Program) -> None:
        """Run a program once, so that kernels are compiled and libraries have their memory, then
        record it."""
        lane = self._lane(shape)
        lane.stream.wait_stream(self._cuda.current_stream(self._device))
        # On the same stream as the recording: a library's handle keeps its memory by stream.
        with self._cuda.stream(lane.stream):
            program()
        lane.stream.synchronize()
        if shape.stage not in self._captured:
            self._programs[shape] = program
            return
        graph = self._cuda.CUDAGraph()
        with self._cuda.graph(graph, pool=lane.pool, stream=lane.stream):
            program()
        self._graphs.append(graph)
        self._programs[shape] = graph.replay

    def replay(self, shape: Shape) -> None:
        """Launch what was recorded, behind everything it depends on."""
        program = self._programs.get(shape)
        if program is None:
            raise UncapturedShapeError(f"{shape} was never captured")
        lane, current = self._lane(shape), self._cuda.current_stream(self._device)
        lane.stream.wait_stream(current)
        if lane.copied is not None:
            # The program writes the memory that this copy reads.
            lane.stream.wait_event(lane.copied)
        with self._cuda.stream(lane.stream):
            program()
        lane.done.record(lane.stream)
        current.wait_event(lane.done)
        self._last = lane

    def copy_out(self, source: Tensor) -> HostCopy:
        """Copy on the stream for copies, behind the last replay and beside the next one."""
        lane = self._last
        assert lane is not None, "nothing has been replayed"
        host, event = self._make_host(source), self._cuda.Event()
        self._copies.wait_event(lane.done)
        with self._cuda.stream(self._copies):
            host.copy_(source, non_blocking=True)
        event.record(self._copies)
        lane.copied = event
        return _PinnedCopy(host, event)

    def synchronize(self) -> None:
        """Block until the last replay is done. The host decides nothing before: this is the one
        place where it waits for a step."""
        if self._last is not None:
            self._last.done.synchronize()

    def memory_bytes(self) -> int:
        """Memory that PyTorch holds on the device, graphs included."""
        return int(self._cuda.memory_reserved(self._device))

    def close(self) -> None:
        """Free what was recorded."""
        before = self.memory_bytes()
        self._cuda.synchronize(self._device)
        self._programs.clear()
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()
        self._cuda.empty_cache()
        freed = before - self.memory_bytes()
        _LOG.info("graphs freed: %.1f MiB of device memory given back", freed / _MIB)


def make_driver(
    device: str,
    *,
    captured: Iterable[Stage] = tuple(Stage),
    fp32_math: Fp32Math = Fp32Math.EXACT,
) -> GraphDriver:
    """The driver of a device.

    Args:
        device: `cpu`, `cuda` or `cuda:N`.
        captured: stages to record, where the device can record at all.
        fp32_math: of everything that runs on a GPU in this process from now on.

    Raises:
        ReferenceEngineError: there is none for it, or it is not there.
    """
    kind = torch.device(device).type
    if kind == "cpu":
        return CpuDriver()
    if kind != "cuda":
        raise ReferenceEngineError(f"device {device!r}: programs can run on 'cpu' or 'cuda' only")
    if not torch.cuda.is_available():
        raise ReferenceEngineError(
            f"device {device!r}: this PyTorch ({torch.__version__}) finds no CUDA device;"
            " use 'cpu', or install a CUDA build on a machine with a GPU"
        )
    index = torch.device(device).index
    if index is not None:
        if index >= torch.cuda.device_count():
            raise ReferenceEngineError(
                f"device {device!r}: this machine has {torch.cuda.device_count()} CUDA device(s),"
                " numbered from 0"
            )
        # Kernels that are launched outside a stream's own block go to the thread's device.
        torch.cuda.set_device(index)
    # Told in both cases: convolutions use TF32 unless told otherwise, products where a container
    # sets TORCH_ALLOW_TF32_CUBLAS_OVERRIDE.
    is_exact = fp32_math is Fp32Math.EXACT
    torch.backends.cudnn.allow_tf32 = not is_exact
    torch.set_float32_matmul_precision("highest" if is_exact else "high")
    return CudaDriver(device, captured=captured)


class StepInputs:
    """The input buffers of one stage, and how a batch is written into them.

    The host side is written as one array and copied in one go; on the CPU the two are the same
    memory. Each number of rows has its own view [3, rows] of one flat buffer, so that the copy is
    one piece of memory whatever the shape: a strided one would go through a copy on the host and
    another on the device.
    """

    def __init__(
        self, max_rows: int, device: torch.device | str, *, cuda: Any = torch.cuda
    ) -> None:
        self._where = torch.device(device)
        is_cuda = self._where.type == "cuda"
        self._host = torch.zeros(3 * max_rows, dtype=torch.int64, pin_memory=is_cuda)
        self._device = self._host if self._where.type == "cpu" else self._host.to(device)
        self._array = self._host.numpy()
        self._cuda, self._copied = cuda, cuda.Event() if is_cuda else None
        self.max_rows = max_rows

    @property
    def buffer(self) -> Tensor:
        """The whole device buffer; its address never changes."""
        return self._device

    def view(self, rows: int) -> ProgramInputs:
        """What a program of so many rows reads."""
        return ProgramInputs(*self._device[: 3 * rows].view(3, rows))

    def write(
        self, slots: Sequence[int], *, rows: int, counts: Sequence[int], starts: Sequence[int]
    ) -> None:
        """Fill the view of `rows` rows: the batch's own, then padding."""
        num, used = len(slots), 3 * rows
        if self._copied is not None:
            # The copy before may still read this memory, where steps follow without a wait
            # between them; otherwise the event has long passed.
            self._copied.synchronize()
        array = self._array[:used].reshape(3, rows)
        array[:] = 0
        array[0, :num] = slots
        if counts:
            array[1, :num] = counts
        if starts:
            array[2, :num] = starts
        if self._device is not self._host:
            self._device[:used].copy_(self._host[:used], non_blocking=True)
        if self._copied is not None:
            self._copied.record(self._cuda.current_stream(self._where))


class Graphs:
    """Every program of a catalogue, captured once, replayed by batch.

    Args:
        catalogue: the shapes to capture.
        driver: how.
        make_program: builds the program of a shape on the input buffers it is given.
        device: where the input buffers live.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        driver: GraphDriver,
        make_program: Callable[[Shape, ProgramInputs], Program],
        *,
        device: torch.device | str,
    ) -> None:
        self._catalogue, self._driver, self._make_program = catalogue, driver, make_program
        shapes = catalogue.shapes
        most_rows: dict[Stage, int] = {}
        for shape in shapes:
            most_rows[shape.stage] = max(shape.rows, most_rows.get(shape.stage, 0))
        self.inputs = {stage: StepInputs(rows, device) for stage, rows in most_rows.items()}

    def capture(self) -> None:
        """Capture every shape, largest first, so that the smaller ones fit into its memory."""
        before = self._driver.memory_bytes()
        for shape in self._catalogue.shapes:
            inputs = self.inputs[shape.stage].view(shape.rows)
            self._driver.capture(shape, self._make_program(shape, inputs))
        after = self._driver.memory_bytes()
        if not after:
            return  # nobody counts, and nothing was recorded
        _LOG.info(
            "%d programs captured; device memory %.1f MiB before, %.1f MiB after",
            len(self._catalogue.shapes),
            before / _MIB,
            after / _MIB,
        )

    def run(
        self,
        batch: Batch,
        *,
        counts: Sequence[int] | None = None,
        starts: Sequence[int] = (),
    ) -> None:
        """Write a batch into the input buffers and replay its shape.

        Args:
            batch: its real rows, and the captured shape they are padded to.
            counts: instead of the batch's own, where a row is decoded in pieces.
            starts: first codec frame of each real row.

        Raises:
            UncapturedShapeError: the shape does not hold the batch, or was never captured.
        """
        shape = batch.shape
        counts = batch.counts if counts is None else counts
        if len(batch.slots) > shape.rows or max(counts, default=0) > shape.width:
            raise UncapturedShapeError(
                f"{len(batch.slots)} rows of {max(counts, default=1)} do not fit {shape};"
                " split the cohort"
            )
        if shape not in self._catalogue:
            raise UncapturedShapeError(f"{shape} was never captured; split the cohort")
        self.inputs[shape.stage].write(batch.slots, rows=shape.rows, counts=counts, starts=starts)
        self._driver.replay(shape)

    def close(self) -> None:
        """Free what was captured."""
        self._driver.close()
