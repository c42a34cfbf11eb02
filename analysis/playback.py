"""What an ideal player does with chunks as they arrived: when it starts, stalls and ends.

All arithmetic is exact: time is counted in ticks of 1 / sample_rate_hz nanoseconds, in which both
an arrival (whole ns) and a sample's length (10^9 ticks) are integers. Rounding to whole ns happens
once, on the way out.

Source: analysis/METRICS.md, "Playback".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

__all__ = [
    "IMMEDIATE",
    "UNDERRUN_MIN_MS",
    "MediaArrival",
    "PlaybackTimeline",
    "Stall",
    "StartKind",
    "StartRule",
    "buffer_ms",
    "delay_ms",
    "simulate_playback",
]

_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
# A stall shorter than this is not counted as an underrun; the stall itself is still stored.
UNDERRUN_MIN_MS = 1.0


class StartKind(StrEnum):
    """When the player starts."""

    IMMEDIATE = "immediate"  # at the first playable arrival
    DELAY_MS = "delay_ms"  # that much later
    BUFFER_MS = "buffer_ms"  # once that much media is in


@dataclass(frozen=True, slots=True)
class StartRule:
    """A start rule; printed with every figure that depends on it."""

    kind: StartKind
    value_ms: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.value_ms < float("inf"):
            raise ValueError(f"start rule {self.kind.value}: {self.value_ms} ms is not >= 0")

    def __str__(self) -> str:
        if self.kind is StartKind.IMMEDIATE:
            return self.kind.value
        return f"{self.kind.value} {self.value_ms:g}"


IMMEDIATE = StartRule(StartKind.IMMEDIATE)


def delay_ms(value_ms: float) -> StartRule:
    """Start `value_ms` after the first playable arrival."""
    return StartRule(StartKind.DELAY_MS, value_ms)


def buffer_ms(value_ms: float) -> StartRule:
    """Start once `value_ms` of media is in; a shorter clip starts when its last chunk is in."""
    return StartRule(StartKind.BUFFER_MS, value_ms)


@dataclass(frozen=True, slots=True)
class MediaArrival:
    """One chunk as the player sees it: when it came and how many samples it completed.

    The true arrival lies within `uncertainty_ns` before `arrival_ns`.
    """

    arrival_ns: int
    num_samples: int
    uncertainty_ns: int = 0


@dataclass(frozen=True, slots=True)
class Stall:
    """Playback stood still, waiting for the chunk at `index` of the arrivals.

    least_ns, most_ns: how short and how long it can have been, given how uncertain this arrival
    and all before it are. It was longest if this one came as stamped and those before as early as
    their stamps allow; a late stamp on the first chunk hides a stall as well as it can feign one.
    """

    index: int
    start_ns: int
    length_ns: int
    exact_length_ns: Fraction
    least_ns: int
    most_ns: int

    @property
    def start_ms(self) -> float:
        """On the run clock."""
        return self.start_ns / _NS_PER_MS

    @property
    def length_ms(self) -> float:
        return self.length_ns / _NS_PER_MS


@dataclass(frozen=True, slots=True)
class PlaybackTimeline:
    """One reply as played. Times are ns on the run clock.

    play_ns: per arrival, when its first sample plays (for a chunk without samples, where the next
        would). due_ns: per arrival, when that sample was needed; slack_ns: due minus arrival. Both
        are None for the first playable chunk and for chunks without samples.
    stalls: those of the arrivals as stamped. waits: the same, and every other arrival that the
        player would have waited for had some come earlier than stamped.
    required_delay_ns: the smallest start delay that plays without a gap.
    exact_end_ns: start + audio duration + sum of the exact stalls, always.
    """

    start: StartRule
    sample_rate_hz: int
    num_samples: int
    num_playable: int
    start_ns: int
    end_ns: int
    exact_end_ns: Fraction
    stalls: tuple[Stall, ...]
    waits: tuple[Stall, ...]
    play_ns: tuple[int, ...]
    due_ns: tuple[int | None, ...]
    slack_ns: tuple[int | None, ...]
    required_delay_ns: int
    media_before: tuple[int, ...]

    @property
    def is_continuity_applicable(self) -> bool:
        """Whether there was anything to run dry: a reply in one chunk has no continuity."""
        return self.num_playable > 1

    def underruns(self, *, min_ms: float = UNDERRUN_MIN_MS) -> tuple[Stall, ...]:
        """Stalls of at least `min_ms` that certainly happened."""
        return tuple(s for s in self.stalls if _is_certain(s, min_ms))

    def undecided(self, *, min_ms: float = UNDERRUN_MIN_MS) -> tuple[Stall, ...]:
        """Stalls of at least `min_ms` that the stamps neither prove nor rule out."""
        limit_ns = min_ms * _NS_PER_MS
        return tuple(s for s in self.waits if s.most_ns >= limit_ns and not _is_certain(s, min_ms))

    def sample_played_ns(self, sample: int) -> int:
        """When sample `sample` (0-based) leaves the player.

        Raises:
            IndexError: the clip has no such sample.
        """
        if not 0 <= sample < self.num_samples:
            raise IndexError(f"sample {sample} of a clip of {self.num_samples}")
        index = bisect_right(self.media_before, sample) - 1
        offset = sample - self.media_before[index]
        return self.play_ns[index] + _round_div(offset * _NS_PER_S, self.sample_rate_hz)


def simulate_playback(
    arrivals: Sequence[MediaArrival], sample_rate_hz: int, *, start: StartRule = IMMEDIATE
) -> PlaybackTimeline:
    """Replay chunk arrivals through an ideal player and find every stall.

    The player starts by `start`, drains in real time, stalls when dry, and resumes at the next
    arrival. Chunks without samples (a header alone) take no part.

    Args:
        arrivals: in order, `arrival_ns` on the run clock and whole samples.
        sample_rate_hz: of those samples.
        start: immediate, after a delay, or once a buffer is filled.

    Returns:
        Start, end and stalls in ns on the run clock.

    Raises:
        ValueError: arrivals go backwards, hold a negative count, or no sample at all.

    Source: analysis/METRICS.md, "Playback".
    """
    rate = sample_rate_hz
    playable = _check(arrivals, rate)
    with_samples = [arrivals[i] for i in playable]
    start_ns = _start_ns(with_samples, rate, start)
    earliest_ns = _earliest_start_ns(with_samples, rate, start)
    replay = _Replay(start_ns * rate, earliest=earliest_ns * rate)
    for index, arrival in enumerate(arrivals):
        replay.take(index, arrival, rate)
    end_ticks = replay.shift + replay.media * _NS_PER_S
    due = [None if i == playable[0] else ns for i, ns in enumerate(replay.due_ns)]
    return PlaybackTimeline(
        start=start,
        sample_rate_hz=rate,
        num_samples=replay.media,
        num_playable=len(playable),
        start_ns=start_ns,
        end_ns=_round_div(end_ticks, rate),
        exact_end_ns=Fraction(end_ticks, rate),
        stalls=tuple(stall for stall in replay.waits if stall.exact_length_ns > 0),
        waits=tuple(replay.waits),
        play_ns=tuple(replay.play_ns),
        due_ns=tuple(due),
        slack_ns=tuple(
            None if ns is None else ns - arrival.arrival_ns
            for ns, arrival in zip(due, arrivals, strict=True)
        ),
        required_delay_ns=_round_div(replay.required, rate),
        media_before=tuple(replay.media_before),
    )


class _Replay:
    """The player's state while arrivals are fed to it, in ticks of 1 / rate ns.

    `shift` is how far playback has been pushed back: sample m plays at shift + m x 10^9 ticks, so
    a late chunk raises it and nothing ever lowers it. `earliest` is the same had every chunk come
    as early as its stamp allows.
    """

    __slots__ = (
        "due_ns",
        "earliest",
        "first_ns",
        "media",
        "media_before",
        "play_ns",
        "required",
        "shift",
        "waits",
    )

    def __init__(self, shift: int, *, earliest: int) -> None:
        self.shift = shift
        self.earliest = earliest
        self.media = 0
        self.required = 0
        self.first_ns: int | None = None
        self.waits: list[Stall] = []
        self.play_ns: list[int] = []
        self.due_ns: list[int | None] = []
        self.media_before: list[int] = []

    def take(self, index: int, arrival: MediaArrival, rate: int) -> None:
        media_ticks, shift = self.media * _NS_PER_S, self.shift
        due_ns = _round_div(shift + media_ticks, rate)
        is_playable = arrival.num_samples > 0
        if is_playable:
            if self.first_ns is None:
                self.first_ns = arrival.arrival_ns
            else:
                self._wait(index, arrival, rate)
            behind = (arrival.arrival_ns - self.first_ns) * rate - media_ticks
            self.required = max(self.required, behind)
        is_late = self.shift != shift
        self.play_ns.append(_round_div(self.shift + media_ticks, rate) if is_late else due_ns)
        self.due_ns.append(due_ns if is_playable else None)
        self.media_before.append(self.media)
        self.media += arrival.num_samples

    def _wait(self, index: int, arrival: MediaArrival, rate: int) -> None:
        """Push playback back to this arrival, if it is late or may have been."""
        media_ticks = self.media * _NS_PER_S
        behind = arrival.arrival_ns * rate - media_ticks
        doubt = arrival.uncertainty_ns * rate
        late, most = behind - self.shift, behind - self.earliest
        if max(late, most) > 0:
            self.waits.append(
                Stall(
                    index=index,
                    start_ns=_round_div(self.shift + media_ticks, rate),
                    length_ns=_round_div(max(0, late), rate),
                    exact_length_ns=Fraction(max(0, late), rate),
                    least_ns=_round_div(max(0, late - doubt), rate),
                    most_ns=_round_div(max(late, most), rate),
                )
            )
        self.shift += max(0, late)
        self.earliest = max(self.earliest, behind - doubt)


def _check(arrivals: Sequence[MediaArrival], rate: int) -> list[int]:
    """Indices of the chunks that hold samples."""
    if rate <= 0:
        raise ValueError(f"sample rate {rate} Hz is not > 0")
    for index, arrival in enumerate(arrivals):
        if arrival.num_samples < 0:
            raise ValueError(f"arrival {index}: {arrival.num_samples} samples is not >= 0")
        if index and arrival.arrival_ns < arrivals[index - 1].arrival_ns:
            raise ValueError(
                f"arrival {index} at {arrival.arrival_ns} ns is before the one at"
                f" {arrivals[index - 1].arrival_ns} ns"
            )
    playable = [i for i, arrival in enumerate(arrivals) if arrival.num_samples]
    if not playable:
        raise ValueError("no arrival holds a sample, so there is nothing to play")
    return playable


def _start_ns(playable: Sequence[MediaArrival], rate: int, start: StartRule) -> int:
    if start.kind is StartKind.BUFFER_MS:
        wanted = Fraction(start.value_ms) * rate / 1000  # in samples
        media = 0
        for arrival in playable:
            media += arrival.num_samples
            if media >= wanted:
                return arrival.arrival_ns
        return playable[-1].arrival_ns
    delay_ns = round(start.value_ms * _NS_PER_MS) if start.kind is StartKind.DELAY_MS else 0
    return playable[0].arrival_ns + delay_ns


def _earliest_start_ns(playable: Sequence[MediaArrival], rate: int, start: StartRule) -> int:
    """When playback would have started had every chunk come as early as its stamp allows."""
    # Only a buffer is filled by more than the first of them.
    first = playable if start.kind is StartKind.BUFFER_MS else playable[:1]
    early = [
        MediaArrival(each.arrival_ns - each.uncertainty_ns, each.num_samples) for each in first
    ]
    return _start_ns(early, rate, start)


def _is_certain(stall: Stall, min_ms: float) -> bool:
    limit = Fraction(min_ms) * _NS_PER_MS
    return stall.exact_length_ns >= limit and stall.least_ns >= limit


def _round_div(numerator: int, denominator: int) -> int:
    """Nearest integer to a quotient, halves upward."""
    return (2 * numerator + denominator) // (2 * denominator)
