"""What one step does: a stage, the slots of its rows, and the captured shape it is padded to.

The catalogue is the list of shapes that exist. It follows from the profile by one rule, so that
capture, admission and scheduling can never disagree about it.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from reference_engine.config import Batching, Capture, Profile, Stages
from reference_engine.errors import UncapturedShapeError

__all__ = ["NUM_STAGES", "Batch", "Catalogue", "Shape", "Stage", "Urgency", "captured_stages"]


class Stage(IntEnum):
    """The kinds of step. The numbers index the ready sets."""

    PREFILL = 0  # prompt rows but the last, into the slot's Talker KV
    TALKER = 1  # one Talker position and the first code
    PREDICTOR = 2  # the other 15 codes and the next Talker input
    FRAME = 3  # talker and predictor in one
    CODEC = 4  # codes to samples


NUM_STAGES = len(Stage)


def captured_stages(capture: Capture) -> frozenset[Stage]:
    """The stages that a profile has recorded."""
    if capture is Capture.ALL:
        return frozenset(Stage)
    return frozenset({Stage.PREDICTOR} if capture is Capture.PREDICTOR else ())


class Urgency(IntEnum):
    """Why a batch was chosen."""

    RESCUE = 0  # somebody's playback is about to run dry
    STARTUP = 1  # somebody has heard nothing yet
    STEADY = 2  # work that is due before long
    TURN = 3  # its turn, for policies without deadlines


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """One captured shape. `width` is prompt tokens (prefill) or codec frames (codec), else 1."""

    stage: Stage
    rows: int
    width: int = 1


@dataclass(slots=True)
class Batch:
    """One step to run. `slots` are its real rows, in order; `shape` includes the padding.

    counts: prompt tokens (prefill) or codec frames (codec) of each row; empty for other stages.
    """

    shape: Shape
    slots: list[int]
    counts: list[int]
    anchor: int
    urgency: Urgency

    @property
    def stage(self) -> Stage:
        """The stage of its shape."""
        return self.shape.stage


class Catalogue:
    """The captured shapes of a profile, and the smallest one that holds a given batch.

    The rule: every row bucket of a stage, crossed with every width bucket; of the codec only
    those with rows x frames up to `max_codec_work`. Sequential batching has one row throughout.
    """

    def __init__(self, profile: Profile) -> None:
        buckets = profile.buckets
        alone = profile.batching is Batching.SEQUENTIAL
        self._rows: dict[Stage, tuple[int, ...]] = {
            Stage.PREFILL: (1,) if alone else buckets.prefill_rows,
            Stage.CODEC: (1,) if alone else buckets.codec_rows,
        }
        frame_rows = (1,) if alone else buckets.frame_rows
        fused = profile.stages is Stages.FUSED
        self.frame_stages = (Stage.FRAME,) if fused else (Stage.TALKER, Stage.PREDICTOR)
        self._rows.update(dict.fromkeys(self.frame_stages, frame_rows))
        self._widths = {
            Stage.PREFILL: buckets.prefill_tokens,
            Stage.CODEC: buckets.codec_frames,
        }
        self._max_codec_work = buckets.max_codec_work
        self._shapes = self._all()
        self._most = self._most_rows()
        self._up = {stage: self._ladder(rows) for stage, rows in self._rows.items()}

    def _all(self) -> frozenset[Shape]:
        shapes = {
            Shape(stage, rows, width)
            for stage, sizes in self._rows.items()
            for rows in sizes
            for width in self._widths.get(stage, (1,))
            if stage is not Stage.CODEC or rows * width <= self._max_codec_work
        }
        return frozenset(shapes)

    @staticmethod
    def _ladder(sizes: tuple[int, ...]) -> list[int]:
        """Position n holds the smallest size >= n."""
        return [sizes[bisect.bisect_left(sizes, n)] for n in range(sizes[-1] + 1)]

    @property
    def shapes(self) -> list[Shape]:
        """Every captured shape, largest first: the order of capture."""
        return sorted(self._shapes, key=lambda shape: (shape.rows * shape.width, shape))[::-1]

    def __contains__(self, shape: Shape) -> bool:
        return shape in self._shapes

    def _most_rows(self) -> dict[tuple[Stage, int], int]:
        most: dict[tuple[Stage, int], int] = {}
        for shape in self._shapes:
            key = (shape.stage, shape.width)
            most[key] = max(shape.rows, most.get(key, 0))
        return most

    def max_rows(self, stage: Stage, width: int = 1) -> int:
        """The most rows that one step of this stage and width bucket can take."""
        return self._most[stage, width]

    def max_width(self, stage: Stage) -> int:
        """The widest captured bucket of a stage."""
        return self._widths[stage][-1]

    def width_bucket(self, stage: Stage, width: int) -> int | None:
        """The smallest captured width >= `width`; None where there is none."""
        sizes = self._widths[stage]
        at = bisect.bisect_left(sizes, width)
        return sizes[at] if at < len(sizes) else None

    def rows_bucket(self, stage: Stage, rows: int) -> int:
        """The captured number of rows that `rows` are padded to.

        Raises:
            UncapturedShapeError: more rows than the largest bucket; the cohort must be split.
        """
        ladder = self._up[stage]
        if not 0 < rows < len(ladder):
            raise UncapturedShapeError(
                f"{stage.name.lower()}: {rows} rows, but the largest captured bucket is"
                f" {len(ladder) - 1}; split the cohort"
            )
        return ladder[rows]

    def batch(
        self,
        stage: Stage,
        slots: list[int],
        *,
        width: int = 1,
        counts: Sequence[int] = (),
        urgency: Urgency,
    ) -> Batch:
        """A batch of `slots` at the smallest shape that holds it; the first slot is the anchor.

        Raises:
            UncapturedShapeError: no captured shape holds it.
        """
        shape = Shape(stage, self.rows_bucket(stage, len(slots)), width)
        if shape not in self._shapes:
            raise UncapturedShapeError(f"{shape} was never captured; split the cohort")
        return Batch(shape, slots, list(counts), slots[0], urgency)
