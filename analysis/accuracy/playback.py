"""Reported underruns against those that truly happened."""

from __future__ import annotations

from dataclasses import dataclass, field

from analysis.accuracy.figures import PlaybackAccuracy, spread
from analysis.accuracy.pairs import Pair
from analysis.outcomes import FinalOutcome
from analysis.playback import UNDERRUN_MIN_MS
from harness.truth.expected import Bracket

__all__ = ["PlaybackCollector"]

_NS_PER_MS = 1e6
_MIN_NS = round(UNDERRUN_MIN_MS * _NS_PER_MS)


@dataclass(slots=True)
class PlaybackCollector:
    """Counts chunk by chunk, over whole replies of more than one chunk."""

    num_chunks: int = 0
    num_true: int = 0
    num_reported: int = 0
    num_missed: int = 0
    num_invented: int = 0
    num_ambiguous: int = 0
    num_undecided: int = 0
    num_replies: int = 0
    num_replies_undecided: int = 0
    stall_ms: list[float] = field(default_factory=list)

    def add(self, pair: Pair) -> None:
        """One request."""
        truth, chunks = pair.truth, pair.chunks
        is_whole = pair.reported.outcome == FinalOutcome.OK.value
        if truth is None or not is_whole or (chunks.num_samples < 0).any():
            return
        playable = [index for index in range(len(chunks)) if chunks.num_samples[index]]
        if len(playable) < 2:
            return
        self.num_replies += 1
        undecided_before = self.num_undecided
        stalls = truth.stalls(pair.payload_ends())
        # One true stall for every playable chunk but the first, in order.
        for index, true in zip(playable[1:], stalls, strict=True):
            self._add(int(chunks.stall_ns[index]), bool(chunks.is_undecided[index]), true.length)
        self.num_replies_undecided += self.num_undecided > undecided_before

    def _add(self, stall_ns: int, is_undecided: bool, true: Bracket) -> None:
        is_certain = true.lo_ns >= _MIN_NS
        is_certainly_none = true.hi_ns is not None and true.hi_ns < _MIN_NS
        self.num_chunks += 1
        self.num_true += is_certain
        if is_undecided:
            self.num_undecided += 1
            return
        is_reported = stall_ns >= _MIN_NS
        self.num_reported += is_reported
        if not is_certain and not is_certainly_none:
            self.num_ambiguous += 1
        elif is_reported and is_certainly_none:
            self.num_invented += 1
        elif is_certain and not is_reported:
            self.num_missed += 1
        elif is_certain and true.hi_ns is not None:
            ends = (true.lo_ns, true.hi_ns)
            self.stall_ms.append(max(abs(stall_ns - end) for end in ends) / _NS_PER_MS)

    def result(self) -> PlaybackAccuracy:
        """The figures."""
        return PlaybackAccuracy(
            num_chunks=self.num_chunks,
            num_true=self.num_true,
            num_reported=self.num_reported,
            num_missed=self.num_missed,
            num_invented=self.num_invented,
            num_ambiguous=self.num_ambiguous,
            num_undecided=self.num_undecided,
            num_replies=self.num_replies,
            num_replies_undecided=self.num_replies_undecided,
            stall_error_ms=spread(self.stall_ms),
        )
