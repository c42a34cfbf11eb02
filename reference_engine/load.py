"""Whether the device can keep one stream more fed, predicted from measured step times.

A stream needs one codec frame in every 80 ms of playing time, and a codec call for each of its
chunks. The load of some streams is the device time which that takes, over the playing time it
makes: at 1 nothing else could run. Chunks of two codec frames load the device far more than chunks
of eight, so streams that have just begun count for what they are, and newcomers are let in no
faster than their small chunks can be made. The gaps between steps, steps that could have been
shared, and the tails of step times must fit into what the profile's `max_load` leaves free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from reference_engine.batch import Catalogue, Shape, Stage
from reference_engine.config import FixedChunks, Profile
from reference_engine.scheduler.reserves import Reserves
from reference_engine.scheduler.scheduler import CODEC_FRAME_NS

__all__ = ["LoadModel"]

# Of each step's slowdown in the running mean of its stage: some half a second of steps.
_WEIGHT = 1 / 32
_REFRESH_EVERY = 16  # steps between two looks at how many streams fit


class LoadModel:
    """The load of any set of streams, and how many keep it under the profile's limit.

    A shape takes what it took when it was rehearsed, times how much slower its stage runs now than
    it was rehearsed: a machine shared with others is slower at every shape, those that have not
    run for a while included. A shape that was never rehearsed takes the reserve of its stage.

    num_places: streams that fit where the last of them has just begun and the others are past
    their small chunks; all slots where the profile sets no limit. It may be read from any thread;
    everything else belongs to the engine's.
    """

    def __init__(self, profile: Profile, catalogue: Catalogue, reserves: Reserves) -> None:
        self._catalogue, self._reserves = catalogue, reserves
        self._max_load, self._slots = profile.max_load, profile.slots
        self._codec_work = profile.fill.codec_work
        chunks = profile.chunks
        if isinstance(chunks, FixedChunks):
            self.first_frames, self._steady_frames = chunks.ramp[0], chunks.ramp[-1]
        else:
            self.first_frames, self._steady_frames = chunks.first, chunks.max_frames
        self._rehearsed_ns: dict[Shape, int] = {}
        self._slowdown = dict.fromkeys(Stage, 1.0)
        self._num_measured = 0
        self.num_places = profile.slots

    def rehearsed(self, shape: Shape, duration_ns: int) -> None:
        """Take note of a shape's time with nobody else on the device."""
        self._rehearsed_ns[shape] = max(duration_ns, 1)
        self._refresh()

    def measured(self, shape: Shape, duration_ns: int) -> None:
        """Take note of one finished step."""
        if self._max_load is None:
            return
        expected_ns = self._rehearsed_ns.get(shape)
        if expected_ns is not None:
            before = self._slowdown[shape.stage]
            self._slowdown[shape.stage] = before + _WEIGHT * (duration_ns / expected_ns - before)
        self._num_measured += 1
        if self._num_measured % _REFRESH_EVERY == 0:
            self._refresh()

    def has_time_for(self, chunk_frames: Iterable[int]) -> bool:
        """Whether streams whose next chunks have so many codec frames can all be kept fed."""
        return self._max_load is None or self.of(chunk_frames) <= self._max_load

    def of(self, chunk_frames: Iterable[int]) -> float:
        """The share of real time that streams with such next chunks (codec frames) need."""
        sizes = Counter(chunk_frames)
        num_steady = sum(rows for frames, rows in sizes.items() if frames >= self._steady_frames)
        # Those that have just begun are in a hurry and step by themselves.
        needed_ns = sum(
            self._split_ns(stage, rows, most=self._catalogue.max_rows(stage))
            for stage in self._catalogue.frame_stages
            for rows in (num_steady, sizes.total() - num_steady)
        )
        for frames, rows in sizes.items():
            width = self._catalogue.width_bucket(Stage.CODEC, frames)
            assert width is not None, "admission refuses what no bucket covers"
            most = self._catalogue.max_rows(Stage.CODEC, width)
            most = min(most, max(1, self._codec_work // width))
            needed_ns += self._split_ns(Stage.CODEC, rows, most=most, width=width) / frames
        return needed_ns / CODEC_FRAME_NS

    def _split_ns(self, stage: Stage, rows: int, *, most: int, width: int = 1) -> float:
        """The steps of one stage that serve so many rows once."""
        num_full, rest = divmod(rows, most)
        total_ns = num_full * self._shape_ns(stage, most, width) if num_full else 0.0
        return total_ns + (self._shape_ns(stage, rest, width) if rest else 0.0)

    def _shape_ns(self, stage: Stage, rows: int, width: int) -> float:
        shape = Shape(stage, self._catalogue.rows_bucket(stage, rows), width)
        known_ns = self._rehearsed_ns.get(shape)
        if known_ns is None:
            return self._reserves.ns[stage]
        return known_ns * self._slowdown[stage]

    def _refresh(self) -> None:
        """The most streams under the limit; one at least, or nobody would be served at all."""
        if self._max_load is None:
            return
        fits, too_many = 1, self._slots + 1
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self.has_time_for([self.first_frames] + [self._steady_frames] * (middle - 1)):
                fits = middle
            else:
                too_many = middle
        self.num_places = fits
