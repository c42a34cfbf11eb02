"""What a client should have measured, computed from the log of what was sent. Own arithmetic.

A send lies between two readings of the clock, so the truth is not a number but an interval: the
bytes reached the client's kernel not before the first reading and not after the second. Everything
derived from it is an interval too, found from the earliest and the latest that the parts allow.
Nothing is shared with `analysis`: an error in its player or its latencies cannot hide here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.truth.log import LoggedItem, LoggedRequest, LoggedSeal, LoggedSend, TruthLog
from harness.truth.script import Container, ItemKind, Script
from harness.truth.sound import render

__all__ = ["Bracket", "Delivery", "ExpectedReply", "ExpectedStall", "expected_replies"]

_NS_PER_S = 1_000_000_000
_WAV_HEADER_BYTES = 44
_BYTES_PER_SAMPLE = 2


@dataclass(frozen=True, slots=True)
class Bracket:
    """Not before `lo_ns`, not after `hi_ns` (None: the kernel held it back, so nobody knows)."""

    lo_ns: int
    hi_ns: int | None

    def shifted(self, by_ns: int) -> Bracket:
        """The same interval on another origin."""
        return Bracket(self.lo_ns + by_ns, None if self.hi_ns is None else self.hi_ns + by_ns)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Payload bytes [start, end) that reached the client's kernel together."""

    start: int
    end: int
    arrival: Bracket


def _start(delivery: Delivery) -> int:
    return delivery.start


@dataclass(frozen=True, slots=True)
class ExpectedStall:
    """The player stood still before sample `sample` for as long as `length` (may be nothing)."""

    sample: int
    length: Bracket


@dataclass(frozen=True, slots=True)
class ExpectedReply:
    """The truth about one reply. Times are CLOCK_MONOTONIC.

    chunk_ends: payload positions behind each chunk as the server cut them. `end` is None where
    the reply was cut off or refused.

    What a player does depends on how bytes are handed to it: `ends` are the positions at which it
    gets another piece, each once its last byte is there. None: piece by piece as they arrived.
    """

    number: int
    script: Script
    transport: str
    received_ns: int
    head: Bracket | None
    first_body: Bracket | None
    deliveries: tuple[Delivery, ...]
    chunk_ends: tuple[int, ...]
    end: Bracket | None
    onset_sample: int | None

    @property
    def num_payload_bytes(self) -> int:
        """Sent in all."""
        return self.deliveries[-1].end if self.deliveries else 0

    def arrival_of(self, payload_byte: int) -> Bracket:
        """When one payload byte reached the client's kernel."""
        at = bisect_right(self.deliveries, payload_byte, key=_start) - 1
        if at < 0 or payload_byte >= self.deliveries[at].end:
            raise IndexError(f"reply {self.number} has no payload byte {payload_byte}")
        return self.deliveries[at].arrival

    def first_sample(self, ends: Sequence[int] | None = None) -> Bracket | None:
        """When the first whole sample was there."""
        return next((part.arrival for part in self._parts(ends) if part.num_samples), None)

    def onset_received(self, ends: Sequence[int] | None = None) -> Bracket | None:
        """When the onset sample was there."""
        onset = self.onset_sample
        for part in self._parts(ends):
            if onset is not None and part.before <= onset < part.before + part.num_samples:
                return part.arrival
        return None

    def onset_played(self, ends: Sequence[int] | None = None) -> Bracket | None:
        """When a player that starts with the first sample plays the onset sample.

        Sample m plays as soon as every delivery up to its own has come and all media between that
        delivery and m has been played: the largest of (arrival - media before it), plus m.
        """
        onset = self.onset_sample
        if onset is None:
            return None
        lo_ns, hi_ns = 0, 0
        is_bounded = True
        for part in self._parts(ends):
            if part.num_samples == 0:
                continue
            lo_ns = max(lo_ns, part.arrival.lo_ns - part.before_ns)
            if part.arrival.hi_ns is None:
                is_bounded = False
            else:
                hi_ns = max(hi_ns, part.arrival.hi_ns - part.before_ns)
            if onset < part.before + part.num_samples:
                media_ns = self._media_ns(onset)
                return Bracket(lo_ns + media_ns, hi_ns + media_ns if is_bounded else None)
        return None

    def stalls(self, ends: Sequence[int] | None = None) -> tuple[ExpectedStall, ...]:
        """For every piece after the first: how long the player waited for it, at least and most.

        It waits longest when this one came as late and all before it as early as they can have.
        """
        found: list[ExpectedStall] = []
        earliest_ns = latest_ns = None
        for part in self._parts(ends):
            if part.num_samples == 0:
                continue
            lo_ns = part.arrival.lo_ns - part.before_ns
            hi_ns = None if part.arrival.hi_ns is None else part.arrival.hi_ns - part.before_ns
            if earliest_ns is not None:
                least = 0 if latest_ns is None else max(0, lo_ns - latest_ns)
                most = None if hi_ns is None else max(0, hi_ns - earliest_ns)
                found.append(ExpectedStall(part.before, Bracket(least, most)))
                earliest_ns = max(earliest_ns, lo_ns)
                latest_ns = None if latest_ns is None or hi_ns is None else max(latest_ns, hi_ns)
            else:
                earliest_ns, latest_ns = lo_ns, hi_ns
        return tuple(found)

    def _parts(self, ends: Sequence[int] | None) -> Iterator[_Part]:
        """Pieces as samples: a sample belongs to the piece that completes it."""
        header = _WAV_HEADER_BYTES if self.script.container is Container.WAV else 0
        before = 0
        for end in [each.end for each in self.deliveries] if ends is None else ends:
            done = max(0, end - header) // _BYTES_PER_SAMPLE
            yield _Part(before, done - before, self._media_ns(before), self.arrival_of(end - 1))
            before = done

    def _media_ns(self, sample: int) -> int:
        return round(sample * _NS_PER_S / self.script.sound.sample_rate_hz)


@dataclass(frozen=True, slots=True)
class _Part:
    before: int
    num_samples: int
    before_ns: int
    arrival: Bracket


def expected_replies(log: TruthLog, scripts: Mapping[str, Script]) -> dict[int, ExpectedReply]:
    """The truth about every request of a log, by its number."""
    sends: dict[int, list[LoggedSend]] = defaultdict(list)
    seals: dict[int, list[LoggedSeal]] = defaultdict(list)
    items: dict[int, list[LoggedItem]] = defaultdict(list)
    for send in log.sends:
        sends[send.connection].append(send)
    for seal in log.seals:
        seals[seal.connection].append(seal)
    for item in log.items:
        items[item.request].append(item)
    lines = {
        number: _Line(sends[number], seals[number] if log.is_sealed else None)
        for number in {request.connection for request in log.requests}
    }
    onsets = {name: render(script.sound).onset_sample for name, script in scripts.items()}
    return {
        request.number: _expected(
            request,
            items[request.number],
            lines[request.connection],
            script=scripts[request.script],
            onset_sample=onsets[request.script],
        )
        for request in log.requests
    }


class _Line:
    """One connection: from a plain position to the send that carried it."""

    def __init__(self, sends: Sequence[LoggedSend], seals: Sequence[LoggedSeal] | None) -> None:
        self._sends = sends
        self._starts = [send.wire_start for send in sends]
        self._seals = seals
        self._seal_starts = [] if seals is None else [seal.plain_start for seal in seals]

    def arrival(self, plain: int) -> Bracket | None:
        """When the byte at a plain position arrived; None where it was never sent."""
        wire = self._wire(plain)
        at = -1 if wire is None else bisect_right(self._starts, wire) - 1
        if wire is None or at < 0 or wire >= self._sends[at].wire_end:
            return None
        send = self._sends[at]
        is_held = wire >= send.wire_end - send.num_held
        return Bracket(send.before_ns, None if is_held else send.after_ns)

    def ends_with(self, plain: int) -> int:
        """The last plain position that arrives together with `plain`."""
        if self._seals is not None:
            return self._seals[bisect_right(self._seal_starts, plain) - 1].plain_end - 1
        send = self._sends[bisect_right(self._starts, plain) - 1]
        first_held = send.wire_end - send.num_held
        return (first_held if plain < first_held else send.wire_end) - 1

    def _wire(self, plain: int) -> int | None:
        """The wire position that has to be there before the plain one can be read."""
        if self._seals is None:
            return plain
        at = bisect_right(self._seal_starts, plain) - 1
        if at < 0 or plain >= self._seals[at].plain_end:
            return None  # was never written
        return self._seals[at].wire_end - 1


def _expected(
    request: LoggedRequest,
    items: Sequence[LoggedItem],
    line: _Line,
    *,
    script: Script,
    onset_sample: int | None,
) -> ExpectedReply:
    deliveries: list[Delivery] = []
    chunk_ends: list[int] = []
    head = first_body = end = None
    for item in items:
        if item.kind == ItemKind.HEAD:
            # A transport without a head has no bytes of it either.
            is_empty = item.plain_start == item.plain_end
            head = None if is_empty else line.arrival(item.plain_end - 1)
        elif item.kind == ItemKind.END:
            end = line.arrival(item.plain_end - 1)
        elif item.num_payload:
            first_body = first_body or line.arrival(item.body_at)
            deliveries += _deliveries(item, line)
            chunk_ends.append(item.payload_offset + item.num_payload)
    sent = deliveries[-1].end if deliveries else 0
    return ExpectedReply(
        number=request.number,
        script=script,
        transport=request.transport,
        received_ns=request.received_ns,
        head=head,
        first_body=first_body,
        deliveries=tuple(deliveries),
        chunk_ends=tuple(position for position in chunk_ends if position <= sent),
        end=end,
        onset_sample=onset_sample,
    )


def _deliveries(item: LoggedItem, line: _Line) -> Iterator[Delivery]:
    """The payload of one item, cut where sends or records end; as far as it was sent."""
    begin, end = item.payload_offset, item.payload_offset + item.num_payload
    if item.ready_at is not None:
        arrival = line.arrival(item.ready_at)
        if arrival is not None:
            yield Delivery(begin, end, arrival)
        return
    at = begin
    while at < end:
        plain = item.body_at + at - begin
        arrival = line.arrival(plain)
        if arrival is None:
            return
        stop = min(end, at + line.ends_with(plain) - plain + 1)
        yield Delivery(at, stop, arrival)
        at = stop
