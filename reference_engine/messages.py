"""What the server and the engine thread say to each other: commands in, events out.

Commands are queued and never block the sender; events reach a `Sink` from the delivery thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

__all__ = [
    "SAMPLES_PER_CODEC_FRAME",
    "SAMPLE_RATE_HZ",
    "AppendText",
    "Audio",
    "Cancel",
    "Chunk",
    "Command",
    "End",
    "EndReason",
    "Event",
    "Job",
    "RequestStats",
    "Sink",
]

SAMPLE_RATE_HZ = 24_000  # codec config: output_sample_rate
SAMPLES_PER_CODEC_FRAME = 1_920  # codec config: decode_upsample_rate


@dataclass(frozen=True, slots=True)
class Job:
    """One utterance to make, already tokenised.

    prompt: what the runner needs to begin (token ids, sampling settings); the engine does not look.
    num_prompt_positions: Talker positions before the first codec frame.
    num_prefill_positions: of them, those that the prefill stage must compute (0 where a stored
        prefix covers all but the last).
    num_text_tokens: text rows known so far; is_text_complete: whether no more can come.
    num_characters: of the text, for the runaway guard (of what is known; grows with the text).
    max_new_tokens: first-codebook tokens, the last of which never becomes a codec frame.
    ignore_eos: run to the limit whatever the model says.
    chunk_ramp: codec frames of its chunks, the last for ever; None: by the profile's own rule.
    keeps_silence: never trim, whatever the profile says.
    """

    request_id: str
    prompt: object
    num_prompt_positions: int
    num_prefill_positions: int
    num_text_tokens: int
    is_text_complete: bool
    num_characters: int
    max_new_tokens: int
    ignore_eos: bool = False
    chunk_ramp: tuple[int, ...] | None = None
    keeps_silence: bool = False


@dataclass(frozen=True, slots=True)
class AppendText:
    """More body tokens for a request whose text is still coming; `tokens` is for the runner."""

    request_id: str
    tokens: object
    num_tokens: int
    num_characters: int
    is_end: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a request, wherever it is."""

    request_id: str


class EndReason(StrEnum):
    """How a request ended. Only COMPLETE is a plain success."""

    COMPLETE = "complete"
    LENGTH = "length"  # cut by a limit: its own, the slot's, or the runaway guard
    CANCELLED = "cancelled"
    SLOW_READER = "slow_reader"
    FAILED = "failed"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk as routed. `slack_ns` is how long before the listener ran dry (None: first)."""

    routed_ns: int
    num_codec_frames: int
    num_samples: int
    slack_ns: int | None


@dataclass(slots=True)
class RequestStats:
    """What is known about a request when it is over (ns on the engine's clock, None: not reached).

    `num_codec_frames` were made and decoded; `trimmed_samples` of leading silence were cut.
    """

    request_id: str
    submitted_ns: int
    admitted_ns: int | None = None
    first_step_ns: int | None = None
    first_codec_ns: int | None = None
    first_routed_ns: int | None = None
    ended_ns: int | None = None
    num_codec_frames: int = 0
    trimmed_samples: int = 0
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def min_slack_ns(self) -> int | None:
        """The narrowest escape of any chunk after the first; None where there was only one."""
        known = [chunk.slack_ns for chunk in self.chunks if chunk.slack_ns is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True)
class Audio:
    """Samples for the listener: mono s16le at 24 kHz. `pcm` is None where time is simulated."""

    pcm: bytes | None
    num_samples: int
    routed_ns: int


@dataclass(frozen=True, slots=True)
class End:
    """The last event of a request. `text` says more where the reason alone does not."""

    reason: EndReason
    text: str
    stats: RequestStats


Event = Audio | End
Command = AppendText | Cancel


class Sink(Protocol):
    """Where a request's events go. Called from the delivery thread; must not block."""

    def send(self, event: Event) -> None:
        """Take one event. An exception ends this request alone."""
        ...

    def unread_bytes(self) -> int:
        """Audio that was sent here and not yet read by the listener's connection."""
        ...
