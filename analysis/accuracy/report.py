"""Reported latencies, onsets, outcomes and rate against true ones."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from itertools import pairwise

from analysis.accuracy.figures import Identity, ReportAccuracy, spread
from analysis.accuracy.pairs import Pair
from analysis.outcomes import FinalOutcome
from harness.truth.expected import Bracket, ExpectedReply
from harness.truth.marks import MARK_BYTES, Mark, read_mark
from harness.truth.script import Container, Script
from harness.truth.sound import Voice

__all__ = ["IdentityCollector", "ReportCollector", "is_clean", "true_outcome"]

_NS_PER_MS = 1e6
_NS_PER_S = 1e9
_REFUSALS = (429, 503)


def is_clean(script: Script) -> bool:
    """Whether the sound begins abruptly, over digital silence: its onset is one certain sample."""
    sound = script.sound
    return sound.voice is Voice.TONE and sound.rise_ms == 0 and sound.floor_dbfs is None


def true_outcome(script: Script) -> FinalOutcome:
    """How a request ends that meets this script."""
    if script.status in _REFUSALS:
        return FinalOutcome.REFUSED
    if script.status != 200:
        return FinalOutcome.HTTP_ERROR
    if not script.is_whole:
        return FinalOutcome.TRUNCATED
    return FinalOutcome.SILENT if script.sound.voice is Voice.NONE else FinalOutcome.OK


@dataclass(slots=True)
class ReportCollector:
    """The most each reported figure can have been wrong by."""

    errors_ms: dict[str, list[float]] = field(default_factory=dict)
    onset_ms: dict[str, float] = field(default_factory=dict)
    dispatched_ns: list[int] = field(default_factory=list)
    received_ns: list[int] = field(default_factory=list)

    def add(self, pair: Pair) -> None:
        """One request."""
        said, truth = pair.reported, pair.truth
        if truth is None or said.dispatched_ns is None:
            return
        self.dispatched_ns.append(said.dispatched_ns)
        self.received_ns.append(truth.received_ns + pair.shift_ns)
        ends = pair.payload_ends()
        for name, bracket in _true_moments(truth, ends).items():
            reported_ms = said.metrics[name]
            if bracket is None or reported_ms is None:
                continue
            true = pair.on_run_clock(bracket).shifted(-said.dispatched_ns)
            error_ms = _at_most(reported_ms, true)
            if error_ms is not None:
                self._note(name, error_ms)
                if name == "audible_ttfa" and is_clean(truth.script):
                    self._note("audible_ttfa_clean", error_ms)
        self._add_onset(pair, truth)

    def _add_onset(self, pair: Pair, truth: ExpectedReply) -> None:
        found = pair.reported.onset_sample
        if truth.onset_sample is None or found is None:
            return
        rate_hz = truth.script.sound.sample_rate_hz
        error_ms = (found - truth.onset_sample) * 1e3 / rate_hz
        self._note("leading_silence", abs(error_ms))
        name = truth.script.name
        if abs(error_ms) >= abs(self.onset_ms.get(name, 0.0)):
            self.onset_ms[name] = error_ms

    def _note(self, name: str, error_ms: float) -> None:
        self.errors_ms.setdefault(name, []).append(error_ms)

    def result(self) -> ReportAccuracy:
        """The figures."""
        return ReportAccuracy(
            error_ms={name: spread(values) for name, values in self.errors_ms.items()},
            onset_error_ms=dict(sorted(self.onset_ms.items())),
            rate_error=_rate_error(self.dispatched_ns, self.received_ns),
        )


def _true_moments(truth: ExpectedReply, ends: list[int]) -> dict[str, Bracket | None]:
    """By the name of the metric that reports it, counted from dispatch."""
    is_heard = bool(ends) and truth.onset_sample is not None
    return {
        "ttfb": truth.first_body,
        "ttfp": truth.first_sample(ends),
        "audible_received": truth.onset_received(ends) if is_heard else None,
        "audible_ttfa": truth.onset_played(ends) if is_heard else None,
        "e2e": truth.end,
    }


def _at_most(reported_ms: float, true: Bracket) -> float | None:
    """The distance to the far end of the truth; None where that is not known."""
    if true.hi_ns is None:
        return None
    ends_ms = (true.lo_ns / _NS_PER_MS, true.hi_ns / _NS_PER_MS)
    return max(abs(reported_ms - end_ms) for end_ms in ends_ms)


def _rate_error(dispatched_ns: list[int], received_ns: list[int]) -> float | None:
    """Mean rate by the client's stamps against that by the server's, as a share."""
    if len(dispatched_ns) < 2:
        return None
    reported = max(dispatched_ns) - min(dispatched_ns)
    true = max(received_ns) - min(received_ns)
    return true / reported - 1.0


@dataclass(slots=True)
class IdentityCollector:
    """Bytes against the marks in them, endings against those played."""

    num_requests: int = 0
    num_unmatched: int = 0
    num_marks: int = 0
    num_wrong: int = 0
    wrong_outcomes: list[str] = field(default_factory=list)

    def add(self, pair: Pair) -> None:
        """One request."""
        self.num_requests += 1
        truth = pair.truth
        if truth is None:
            self.num_unmatched += 1
            return
        outcome, wanted = pair.reported.outcome, true_outcome(truth.script)
        if outcome != wanted.value:
            where = f"{pair.reported.request_id} ({truth.script.name})"
            self.wrong_outcomes.append(f"{where}: {outcome}, expected {wanted.value}")
        if pair.payload is not None:
            self._check_marks(pair, truth, pair.payload)

    def _check_marks(self, pair: Pair, truth: ExpectedReply, payload: bytes) -> None:
        skip = 1 if truth.script.container is Container.WAV else 0
        if pair.is_message:
            borders = [0, *(int(end) for end in pair.chunks.end)]
            pieces = [base64.b64decode(payload[a:b]) for a, b in pairwise(borders)]
        else:
            pieces = [payload[a:b] for a, b in pairwise([0, *truth.chunk_ends])]
        for chunk, piece in enumerate(pieces[skip:]):
            if len(piece) >= MARK_BYTES:
                self.num_marks += 1
                self.num_wrong += read_mark(piece) != Mark(truth.number, chunk)

    def result(self) -> Identity:
        """The figures."""
        return Identity(
            num_requests=self.num_requests,
            num_unmatched=self.num_unmatched,
            num_marks=self.num_marks,
            num_wrong_marks=self.num_wrong,
            wrong_outcomes=tuple(self.wrong_outcomes),
        )
