"""From a checked request to a job of the engine: voice, text, sampling, chunks.

Runs on the event loop or in a worker thread, never on the engine's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from reference_engine.assemble import AssembledEngine
from reference_engine.config import FixedChunks, Profile
from reference_engine.messages import Job
from reference_engine.model.config import GenerationDefaults
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model.text.prompts import TextLayout
from reference_engine.model_runner import ModelPrompt
from reference_engine.server.schemas import GenerationFields, SpeechBody, StartMessage

__all__ = ["SAMPLING_FIELDS", "chunk_ramp", "live_job", "sampling", "whole_job"]

# The client's name of each setting, and ours.
SAMPLING_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "do_sample": "do_sample",
        "temperature": "temperature",
        "top_k": "top_k",
        "top_p": "top_p",
        "repetition_penalty": "repetition_penalty",
        "subtalker_dosample": "predictor_do_sample",
        "subtalker_temperature": "predictor_temperature",
        "subtalker_top_k": "predictor_top_k",
        "subtalker_top_p": "predictor_top_p",
    }
)


def sampling(fields: GenerationFields, defaults: GenerationDefaults) -> SamplingSettings:
    """The checkpoint's settings with those the client named laid over them.

    Raises:
        SamplingError: a setting out of range.
    """
    base = SamplingSettings.from_defaults(defaults, seed=fields.seed, ignore_eos=fields.ignore_eos)
    named = {
        ours: getattr(fields, theirs)
        for theirs, ours in SAMPLING_FIELDS.items()
        if theirs in fields.model_fields_set
    }
    return dataclasses.replace(base, **named)


def chunk_ramp(fields: GenerationFields, profile: Profile) -> tuple[int, ...] | None:
    """Codec frames of each chunk as the client named them; None: by the profile's rule.

    The last entry holds for the rest. A first chunk alone is followed by the profile's own sizes.
    """
    if fields.stream_chunk_schedule is not None:
        return tuple(fields.stream_chunk_schedule)
    first = fields.stream_first_chunk_frames or fields.stream_chunk_frames
    steady = fields.stream_steady_chunk_frames or fields.stream_chunk_frames
    chunks = profile.chunks
    own = chunks.ramp if isinstance(chunks, FixedChunks) else (chunks.first, chunks.max_frames)
    if first is None and steady is None:
        return None
    if steady is None:
        assert first is not None
        return (first, *(own[1:] or own))
    return (first or own[0], steady)


def whole_job(assembled: AssembledEngine, request_id: str, body: SpeechBody) -> Job:
    """A request whose text is known.

    Raises:
        UnsayableError: unknown voice or language, a control token, or what no bucket covers.
    """
    prompts = assembled.prompts
    prompt = prompts.build(
        body.input,
        prompts.voice(body.voice, body.language),
        layout=TextLayout.WHOLE if body.non_streaming_mode else TextLayout.STREAMING,
        instruct=body.instruction,
    )
    settings = sampling(body, assembled.model.config.generation)
    job = assembled.runner.job(
        request_id,
        ModelPrompt(prompt, settings),
        num_characters=len(body.input),
        max_new_tokens=body.max_new_tokens,
    )
    return _as_asked(job, body, assembled)


def live_job(
    assembled: AssembledEngine,
    request_id: str,
    start: StartMessage,
    *,
    tokens: tuple[int, ...],
    num_characters: int,
    is_text_complete: bool,
) -> Job:
    """A request whose text still arrives: `tokens` are its stable beginning.

    With `is_text_complete` they are all of it, and the closing token is added here.

    Raises:
        UnsayableError: unknown voice or language, a control token, or what no bucket covers.
    """
    prompts = assembled.prompts
    voice = prompts.voice(start.voice, start.language)
    rows = (*tokens, prompts.tts_eos) if is_text_complete else tokens
    prompt = dataclasses.replace(
        prompts.open(voice, instruct=start.instruction_text), text_rows=rows
    )
    settings = sampling(start, assembled.model.config.generation)
    job = assembled.runner.job(
        request_id,
        ModelPrompt(prompt, settings),
        num_characters=num_characters,
        max_new_tokens=start.max_new_tokens,
        is_text_complete=is_text_complete,
    )
    return _as_asked(job, start, assembled)


def _as_asked(job: Job, fields: GenerationFields, assembled: AssembledEngine) -> Job:
    return dataclasses.replace(
        job,
        chunk_ramp=chunk_ramp(fields, assembled.engine.profile),
        keeps_silence=not fields.skip_fixed_bootstrap_audio,
    )
