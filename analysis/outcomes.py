"""How a request ended once its audio has been looked at.

The recorder wrote how the wire ended. Only where that is `ok` can the sound change the answer:
no samples, no onset, the wrong format, or speech that runs away.

Source: analysis/METRICS.md, "Outcomes".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analysis.onset import Onset
from analysis.reply import Reply
from engines.base import AudioFormat, OddByte, SampleFormat
from engines.outcomes import TransportOutcome
from harness.records import INTERRUPTED_KIND, RequestRecord

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FAILED_OUTCOMES",
    "FinalOutcome",
    "Runaway",
    "Verdict",
    "failures",
    "final_outcome",
    "is_interrupted",
]


class FinalOutcome(StrEnum):
    """Exactly one per request. The first group is the wire's, the second comes from the audio."""

    OK = "ok"
    REFUSED = "refused"
    HTTP_ERROR = "http_error"
    CONNECT_ERROR = "connect_error"
    STALE_CONNECTION = "stale_connection"
    PROTOCOL_ERROR = "protocol_error"
    SERVER_ERROR = "server_error"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    DEAD_PEER = "dead_peer"
    CANCELLED = "cancelled"
    NOT_SENT = "not_sent"
    CLIENT_ERROR = "client_error"

    EMPTY_AUDIO = "empty_audio"  # a clean end without one decodable sample
    SILENT = "silent"  # samples, but no onset
    RUNAWAY = "runaway"  # far more audio than the text can need
    WRONG_FORMAT = "wrong_format"  # not what the contract promised, or bytes that don't decode

    @property
    def is_failure(self) -> bool:
        """Ranks as worse than any latency. A cancelled request is neither good nor failed."""
        return self not in (FinalOutcome.OK, FinalOutcome.CANCELLED)


# As they stand in tables.
FAILED_OUTCOMES = tuple(outcome.value for outcome in FinalOutcome if outcome.is_failure)


def is_interrupted(cohort: pd.DataFrame) -> NDArray[np.bool_]:
    """Which arrivals were in flight when the run itself was interrupted: [n] bool.

    They are stored as `cancelled`, but nobody who was listening meant them to end.
    """
    # A baseline file leaves out columns without a single value.
    if "error_kind" not in cohort:
        return np.zeros(len(cohort), dtype=bool)
    return (cohort["error_kind"] == INTERRUPTED_KIND).to_numpy(dtype=bool)


def failures(cohort: pd.DataFrame) -> pd.Series[bool]:
    """Whether an arrival did not end well, for each that counts; rows keep their labels.

    What the scenario cancelled is neither and left out. What the run's interrupt ended has not
    ended well: it stays in the cohort, as in every latency.
    """
    interrupted = is_interrupted(cohort)
    counts = (cohort["outcome"] != FinalOutcome.CANCELLED.value) | interrupted
    return (cohort["outcome"].isin(FAILED_OUTCOMES) | interrupted)[counts]


@dataclass(frozen=True, slots=True)
class Runaway:
    """When speech is called runaway: both limits passed."""

    seconds_per_character: float = 0.25
    min_duration_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The final outcome and, where the audio decided it, why."""

    outcome: FinalOutcome
    reason: str | None = None


def final_outcome(
    record: RequestRecord, reply: Reply, *, onset: Onset | None, runaway: Runaway
) -> Verdict:
    """The outcome of one request.

    Args:
        record: as the recorder left it.
        reply: its payload, decoded as far as it was recorded and could be.
        onset: found or known; None where there is none or it could not be looked for.
        runaway: limits of `runaway`.
    """
    if record.transport_outcome is not TransportOutcome.OK:
        return Verdict(FinalOutcome(record.transport_outcome.value))
    if reply.error is not None:
        return Verdict(FinalOutcome.WRONG_FORMAT, reply.error)
    if reply.num_samples == 0:
        return Verdict(FinalOutcome.EMPTY_AUDIO)
    mismatch = _mismatch(record, reply)
    if mismatch is not None:
        return Verdict(FinalOutcome.WRONG_FORMAT, mismatch)
    if onset is None and reply.can_find_onset:
        return Verdict(FinalOutcome.SILENT)
    too_long = _runs_away(record, reply, runaway)
    if too_long is not None:
        return Verdict(FinalOutcome.RUNAWAY, too_long)
    return Verdict(FinalOutcome.OK)


def _mismatch(record: RequestRecord, reply: Reply) -> str | None:
    """What differs from the contract, in words, or None."""
    found, expected = record.format, record.expected_format
    if found is not None and found.odd_byte is OddByte.ERROR and reply.dangling_bytes:
        return (
            f"the payload ends {reply.dangling_bytes} byte(s) into a sample, which this contract"
            " calls an error"
        )
    if expected is None or found is None:
        return None
    if found.sample_format is not expected.sample_format and not _may_be_inside(
        found, expected, reply
    ):
        return f"samples are {found.sample_format.value}, expected {expected.sample_format.value}"
    if _is_other(reply.sample_rate_hz, expected.sample_rate_hz):
        return f"sample rate is {reply.sample_rate_hz} Hz, expected {expected.sample_rate_hz}"
    if _is_other(reply.channels, expected.channels):
        return f"{reply.channels} channels, expected {expected.channels}"
    return None


def _is_other(found: int | None, expected: int | None) -> bool:
    """Whether both are known and differ: a header that was not recorded has broken no promise."""
    return None not in (found, expected) and found != expected


_INSIDE_WAV = {
    SampleFormat.S16LE: "s16",
    SampleFormat.S24LE: "s24",
    SampleFormat.F32LE: "f32",
    SampleFormat.MULAW: "mulaw",
    SampleFormat.ALAW: "alaw",
}


def _may_be_inside(found: AudioFormat, expected: AudioFormat, reply: Reply) -> bool:
    """A WAV around the promised samples: the header is no lie about the sound."""
    if found.sample_format is not SampleFormat.WAV or expected.sample_format not in _INSIDE_WAV:
        return False
    return reply.audio is None or _INSIDE_WAV[expected.sample_format] == reply.audio.encoding


def _runs_away(record: RequestRecord, reply: Reply, limits: Runaway) -> str | None:
    num_characters = len(record.text.strip())
    if reply.duration_s is None or not num_characters:
        return None  # the text was not kept, or the rate is unknown: cannot be told
    allowed_s = max(limits.min_duration_s, limits.seconds_per_character * num_characters)
    if reply.duration_s <= allowed_s:
        return None
    return (
        f"{reply.duration_s:.1f} s of audio for {num_characters} characters, more than"
        f" {limits.seconds_per_character:g} s each"
    )
