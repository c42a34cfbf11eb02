"""Stamps of chunks against the sends that carried them, and how late the client was."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from analysis.accuracy.figures import ClientTiming, StampAccuracy, spread
from analysis.accuracy.pairs import Pair
from harness.truth.expected import Bracket

__all__ = ["StampCollector", "TimingCollector"]

_NS_PER_US = 1e3
_NS_PER_MS = 1e6
_WINDOW_NS = 250_000_000
_QUIET_WINDOW_MS = 5.0


@dataclass(slots=True)
class StampCollector:
    """Counts chunk by chunk. A stamp that claims to be exact may be off by `conversion_ns`."""

    conversion_ns: int
    num_chunks: int = 0
    num_exact: int = 0
    num_inside: int = 0
    num_shared: int = 0
    num_unaccounted: int = 0
    num_lost: int = 0
    num_unbounded: int = 0
    kernel_us: list[float] = field(default_factory=list)
    user_us: list[float] = field(default_factory=list)
    bracket_us: list[float] = field(default_factory=list)
    shared_ms: list[float] = field(default_factory=list)

    def add(self, pair: Pair, *, is_kernel: bool) -> None:
        """All chunks of one request."""
        truth = pair.truth
        if truth is None:
            return
        ends = pair.payload_ends()
        self._count_lost(pair, ends)
        for index, end in enumerate(ends):
            true = pair.on_run_clock(truth.arrival_of(end - 1))
            self.num_chunks += 1
            if true.hi_ns is None:
                self.num_unbounded += 1
                continue
            self.bracket_us.append((true.hi_ns - true.lo_ns) / _NS_PER_US)
            self.user_us.append(_outside(int(pair.chunks.read_ns[index]), true) / _NS_PER_US)
            arrival_ns = int(pair.chunks.arrival_ns[index])
            doubt_ns = int(pair.chunks.uncertainty_ns[index])
            if is_kernel and doubt_ns <= self.conversion_ns:
                self._add_exact(arrival_ns, true)
            else:
                self._add_shared(arrival_ns, doubt_ns, true)

    def _add_exact(self, arrival_ns: int, true: Bracket) -> None:
        self.num_exact += 1
        outside_ns = _outside(arrival_ns, true)
        self.num_inside += abs(outside_ns) <= self.conversion_ns
        self.kernel_us.append(outside_ns / _NS_PER_US)

    def _add_shared(self, arrival_ns: int, doubt_ns: int, true: Bracket) -> None:
        assert true.hi_ns is not None
        self.num_shared += 1
        self.shared_ms.append(doubt_ns / _NS_PER_MS)
        is_admitted = (
            true.hi_ns >= arrival_ns - doubt_ns and true.lo_ns <= arrival_ns + self.conversion_ns
        )
        self.num_unaccounted += not is_admitted

    def _count_lost(self, pair: Pair, ends: list[int]) -> None:
        """Borders between chunks that the client ran together."""
        assert pair.truth is not None
        seen = set(ends)
        received = ends[-1] if ends else 0
        self.num_lost += sum(end <= received and end not in seen for end in pair.truth.chunk_ends)

    def result(self) -> StampAccuracy:
        """The figures."""
        return StampAccuracy(
            num_chunks=self.num_chunks,
            num_exact=self.num_exact,
            num_inside=self.num_inside,
            num_shared=self.num_shared,
            num_unaccounted=self.num_unaccounted,
            num_lost_boundaries=self.num_lost,
            num_unbounded=self.num_unbounded,
            kernel_error_us=spread([abs(value) for value in self.kernel_us]),
            user_error_us=spread([abs(value) for value in self.user_us]),
            bracket_us=spread(self.bracket_us),
            shared_width_ms=spread(self.shared_ms),
        )


def _outside(moment_ns: int, true: Bracket) -> int:
    """How far a moment lies outside an interval; early is negative, inside is 0."""
    assert true.hi_ns is not None
    if moment_ns < true.lo_ns:
        return moment_ns - true.lo_ns
    return max(0, moment_ns - true.hi_ns)


@dataclass(slots=True)
class TimingCollector:
    """The client's own lateness. Read lag: from the kernel's stamp to the read."""

    lag_ms: list[float] = field(default_factory=list)
    reads: dict[int, float] = field(default_factory=dict)
    way_us: list[float] = field(default_factory=list)
    num_impossible: int = 0

    def add(self, pair: Pair, *, is_kernel: bool) -> None:
        """One request."""
        said, chunks = pair.reported, pair.chunks
        if said.dispatched_ns is not None:
            self.lag_ms.append((said.dispatched_ns - said.scheduled_ns) / _NS_PER_MS)
        if is_kernel:
            lags = (chunks.read_ns - chunks.arrival_ns) / _NS_PER_MS
            # By moment of reading: chunks of one read are one read.
            self.reads.update(zip(chunks.read_ns.tolist(), lags.tolist(), strict=True))
        if pair.truth is not None and said.sent_ns is not None:
            way_ns = pair.truth.received_ns + pair.shift_ns - said.sent_ns
            self.way_us.append(way_ns / _NS_PER_US)
            self.num_impossible += way_ns < 0

    def result(self) -> ClientTiming:
        """The figures."""
        windows: dict[int, list[float]] = {}
        for read_ns, lag_ms in self.reads.items():
            windows.setdefault(read_ns // _WINDOW_NS, []).append(lag_ms)
        worst = [spread(lags).p99 or 0.0 for lags in windows.values()]
        return ClientTiming(
            dispatch_lag_ms=spread(self.lag_ms),
            read_lag_ms=spread(list(self.reads.values())),
            num_windows=len(windows),
            num_quiet_windows=int(np.sum(np.asarray(worst) <= _QUIET_WINDOW_MS)),
            request_way_us=spread(self.way_us),
            num_impossible_sends=self.num_impossible,
        )
