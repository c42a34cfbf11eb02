"""What the engine loop asks of whoever runs the steps.

Four kinds implement it: the real one (`model_runner`), the simulated one (`simulate`), one that
does nothing (to time the host), and the scripted one of the tests. Only the real one has tensors,
so the loop is the same code on a GPU, on a CPU and on a virtual clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reference_engine.batch import Batch
from reference_engine.messages import Job

__all__ = ["PcmHandle", "RowFlag", "Runner"]


class RowFlag(IntFlag):
    """What a step says about one of its rows."""

    NONE = 0
    EOS = 1  # the model ended at this step; the codec frame it made is not real
    BAD = 2  # NaN or infinity: nothing this row makes can be trusted


class PcmHandle(Protocol):
    """The samples of one codec step, perhaps still on their way to the host."""

    def wait(self) -> None:
        """Block until they are here. Called from the delivery thread."""
        ...

    def samples(self, row: int, num_samples: int) -> npt.NDArray[np.int16] | None:
        """The first samples of a row [num_samples] int16; None where time is simulated.

        Raises:
            StepError: the row is not finite.
        """
        ...


class Runner(Protocol):
    """Owner of all device state. Called by the engine thread alone, never while a step runs."""

    @property
    def text_lookahead(self) -> int:
        """Text tokens beyond its own that a codec frame needs."""
        ...

    def admit(self, slot: int, job: Job) -> None:
        """Reset a slot and load a request into it.

        Raises:
            Exception: this request cannot run; the slot is as good as free.
        """
        ...

    def append_text(self, slot: int, tokens: object, *, is_end: bool) -> None:
        """More text rows for a slot.

        Raises:
            Exception: this request cannot take them.
        """
        ...

    def release(self, slot: int) -> None:
        """The slot belongs to nobody from now on."""
        ...

    def launch(self, batch: Batch, *, wants_flags: bool) -> None:
        """Start one step. With `wants_flags` its row flags can be read afterwards, once.

        Raises:
            StepError: before any slot advanced, because of the slots it names.
        """
        ...

    def wait(self) -> None:
        """Block until the step launched last is done; raises what went wrong in it."""
        ...

    def read_flags(self) -> Sequence[int]:
        """Row flags of the oldest launch that wanted them and was not read; one per real row."""
        ...

    def pcm(self) -> PcmHandle:
        """The samples of the codec step just waited for."""
        ...
