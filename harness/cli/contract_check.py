"""`earwitness contract check`: one short request to a live server, every mismatch that it shows.

It answers "may I trust this contract with this server" before a run does. What it finds is about
the contract alone: how fast the reply was is a matter for a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.audio import DecodedAudio, decode
from analysis.errors import AnalysisError, UnsupportedAudioError
from analysis.onset import find_onset
from engines.base import Adapter, AudioFormat, EngineInfo, OddByte, SpeechRequest
from harness import loop
from harness.clock import Clock, RunClock
from harness.first_contact import hint_for
from harness.probe import identify
from harness.records import RequestRecord, TransportOutcome
from harness.settings import TimeoutSettings, WireSettings
from harness.single import SingleResult, single
from harness.text_source import TextPacing

__all__ = [
    "DEFAULT_TEXT",
    "ContractReport",
    "check_contract",
    "compare_with_contract",
    "run_check",
]

DEFAULT_TEXT = "The weather is fine today, and so is the line."
_READY_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class ContractReport:
    """What one request showed. `notes` are odd but no breach of the contract."""

    engine: str
    base_url: str
    info: EngineInfo
    record: RequestRecord
    mismatches: tuple[str, ...]
    notes: tuple[str, ...]
    duration_s: float | None

    @property
    def is_match(self) -> bool:
        """Whether nothing contradicts the contract."""
        return not self.mismatches


def run_check(
    adapter: Adapter,
    text: str,
    *,
    voice: str | None,
    streams_text: bool,
    timeout_s: float,
    allow_commands: bool,
) -> ContractReport:
    """`check_contract` on a loop of its own, word by word where the text is to be streamed."""
    limits = TimeoutSettings(ready_s=_READY_LIMIT_S, first_audio_s=timeout_s, total_s=timeout_s)
    return loop.run(
        check_contract(
            adapter,
            SpeechRequest("contract-check", text, voice=voice, is_incremental=streams_text),
            settings=WireSettings(timeouts=limits, are_commands_allowed=allow_commands),
            clock=RunClock(),
            text_pacing=TextPacing() if streams_text else None,
        )
    )


async def check_contract(
    adapter: Adapter,
    request: SpeechRequest,
    *,
    settings: WireSettings,
    clock: Clock,
    text_pacing: TextPacing | None = None,
) -> ContractReport:
    """Ask who is there, send one request, compare.

    Raises:
        EngineNotReadyError: nobody, not ready, or another server.
        ContractError: the contract cannot say this request.
    """
    info = await identify(adapter, settings=settings, clock=clock)
    result = await single(adapter, request, settings=settings, clock=clock, text_pacing=text_pacing)
    return compare_with_contract(adapter, info, result)


def compare_with_contract(
    adapter: Adapter, info: EngineInfo, result: SingleResult
) -> ContractReport:
    """Every difference between what came and what the contract says."""
    record = result.record
    mismatches: list[str] = []
    notes: list[str] = []
    audio: DecodedAudio | None = None
    if record.transport_outcome is not TransportOutcome.OK:
        hint = hint_for(adapter, record)
        why = f"{record.error_text}; {hint}" if hint else record.error_text
        mismatches.append(f"the request ended as {record.transport_outcome}: {why}")
    if record.format is not None and result.payload:
        try:
            audio = decode(result.payload, record.format)
        except UnsupportedAudioError as fault:
            notes.append(str(fault))
        except AnalysisError as fault:
            mismatches.append(f"the audio cannot be decoded: {fault}")
        mismatches += _format_mismatches(record.format, record.expected_format, audio)
    elif record.transport_outcome is TransportOutcome.OK:
        mismatches.append("the reply is complete but holds no audio")
    if audio is not None:
        found, noted = _audio_findings(audio, record.format)
        mismatches += found
        notes += noted
    notes += _delivery_notes(adapter, record, info)
    return ContractReport(
        engine=adapter.name,
        base_url=adapter.base_url,
        info=info,
        record=record,
        mismatches=tuple(mismatches),
        notes=tuple(notes),
        duration_s=None if audio is None else audio.duration_s,
    )


def _format_mismatches(
    found: AudioFormat, expected: AudioFormat | None, audio: DecodedAudio | None
) -> list[str]:
    """Sample format, rate and channels, each against the promise where there is one."""
    if expected is None:
        return []
    rate = found.sample_rate_hz or (audio.sample_rate_hz if audio else None)
    channels = found.channels or (audio.channels if audio else None)
    lines = []
    for what, is_, promised in (
        ("audio format", str(found.sample_format), str(expected.sample_format)),
        ("sample rate (Hz)", rate, expected.sample_rate_hz),
        ("number of channels", channels, expected.channels),
    ):
        if is_ is not None and promised is not None and is_ != promised:
            lines.append(f"{what} is {is_}, the contract says {promised}")
    return lines


def _audio_findings(audio: DecodedAudio, found: AudioFormat | None) -> tuple[list[str], list[str]]:
    mismatches: list[str] = []
    notes = list(audio.notes)
    if audio.dangling_bytes:
        line = f"the audio ends inside a sample ({audio.dangling_bytes} bytes over)"
        is_error = found is not None and found.odd_byte is OddByte.ERROR
        (mismatches if is_error else notes).append(line)
    if not len(audio.samples):
        mismatches.append("the audio holds no sample")
    elif audio.sample_rate_hz and find_onset(audio.samples, audio.sample_rate_hz) is None:
        mismatches.append("the audio is silent")
    return mismatches, notes


def _delivery_notes(adapter: Adapter, record: RequestRecord, info: EngineInfo) -> Sequence[str]:
    notes = []
    if adapter.capabilities.is_streaming and len(record.chunks) == 1:
        notes.append("the audio came in one piece although this engine is said to stream")
    if info.is_match is None:
        notes.append("the server does not say who it is, so it cannot be told from another")
    return notes
