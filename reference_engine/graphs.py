"""Captured programs behind one interface: static buffers, padding, and what may be replayed.

A program reads and writes fixed addresses. Before a replay the batch is written into the input
buffers, padding rows included (slot 0, count 0); after it the output is copied out, because the
next replay writes the same memory. A shape that was never captured is an error, never a slower
path taken in silence.

`CpuDriver` keeps every one of these rules with plain calls on the same buffers, so they are tested
without a GPU. Nothing outside this module knows whether a program is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt
import torch
from torch import Tensor

from reference_engine.batch import Batch, Catalogue, Shape, Stage
from reference_engine.errors import ReferenceEngineError, UncapturedShapeError

__all__ = [
    "CpuDriver",
    "GraphDriver",
    "Graphs",
    "HostCopy",
    "ProgramInputs",
    "StepInputs",
    "make_driver",
]


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

    def close(self) -> None:
        """Free everything that was captured."""
        ...


class _CopiedArray:
    """A copy that is here already."""

    def __init__(self, source: Tensor) -> None:
        self._array = source.clone().numpy()

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

    def close(self) -> None:
        """Forget the programs, and with them what they hold on to."""
        self._programs.clear()


def make_driver(device: str) -> GraphDriver:
    """The driver of a device.

    Raises:
        ReferenceEngineError: there is none for it.
    """
    kind = torch.device(device).type
    if kind != "cpu":
        raise ReferenceEngineError(f"device {device!r}: programs can run on 'cpu' only")
    return CpuDriver()


class StepInputs:
    """The input buffers of one stage at its largest shape, and how a batch is written into them.

    The host side is written as one array and copied in one go; on the CPU the two are the same
    memory.
    """

    def __init__(self, max_rows: int, device: torch.device | str) -> None:
        is_cuda = torch.device(device).type == "cuda"
        self._host = torch.zeros(3, max_rows, dtype=torch.int64, pin_memory=is_cuda)
        self._device = self._host.to(device) if is_cuda else self._host
        self._array = self._host.numpy()
        self.max_rows = max_rows

    @property
    def buffer(self) -> Tensor:
        """The whole device buffer [3, rows]; its address never changes."""
        return self._device

    def view(self, rows: int) -> ProgramInputs:
        """What a program of so many rows reads."""
        slots, counts, starts = self._device
        return ProgramInputs(slots[:rows], counts[:rows], starts[:rows])

    def write(
        self, slots: Sequence[int], *, rows: int, counts: Sequence[int], starts: Sequence[int]
    ) -> None:
        """Fill the first `rows` rows: the batch's own, then padding."""
        num, array = len(slots), self._array
        array[:, :rows] = 0
        array[0, :num] = slots
        if counts:
            array[1, :num] = counts
        if starts:
            array[2, :num] = starts
        if self._device is not self._host:
            self._device[:, :rows].copy_(self._host[:, :rows], non_blocking=True)


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
        for shape in self._catalogue.shapes:
            inputs = self.inputs[shape.stage].view(shape.rows)
            self._driver.capture(shape, self._make_program(shape, inputs))

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
