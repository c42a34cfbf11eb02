"""The JSON that clients send: the fields of Nari's server, strict, unknown keys refused.

`POST /v1/audio/speech` takes `SpeechBody`; the first message of a `nari.speech.v1` session is a
`StartMessage`, and further ones are the other messages here. OpenAI's `stream_format: audio` is
taken as well, since its client library can only ask for a stream that way.

Source: Nari's server, git e8c5b2b (2026-08-20, v0.1.0); the bounds are its own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from reference_engine.server.replies import Fault, ReplyError

__all__ = [
    "AppendMessage",
    "CancelMessage",
    "EndMessage",
    "GenerationFields",
    "ResponseFormat",
    "SpeechBody",
    "StartMessage",
    "faults_of",
    "read_body",
]

_MAX_SEED = 2**63 - 1  # the key of the random numbers is stored as int64
_CodecFrames = Annotated[int, Field(ge=1, le=128)]
_Schedule = Annotated[list[_CodecFrames], Field(min_length=1, max_length=32)]
_Positive = Annotated[float, Field(gt=0, le=1e6)]
_TopP = Annotated[float, Field(gt=0, le=1)]
_TopK = Annotated[int, Field(ge=0, le=1_000_000)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ResponseFormat(StrEnum):
    """What this server can send."""

    PCM = "pcm"
    WAV = "wav"


class GenerationFields(_Strict):
    """How to speak. Sampling settings left out are those of the checkpoint."""

    model: str | None = None
    voice: str = "aiden"
    language: str = "auto"
    seed: Annotated[int, Field(ge=0, le=_MAX_SEED)] = 0
    do_sample: bool = True
    temperature: _Positive = 0.9
    top_k: _TopK = 50
    top_p: _TopP = 1.0
    repetition_penalty: _Positive = 1.05
    subtalker_dosample: bool = True
    subtalker_temperature: _Positive = 0.9
    subtalker_top_k: _TopK = 50
    subtalker_top_p: _TopP = 1.0
    max_new_tokens: Annotated[int, Field(ge=1, le=32_768)] = 2_048
    ignore_eos: bool = False
    skip_fixed_bootstrap_audio: bool = True
    stream_chunk_schedule: _Schedule | None = None
    stream_chunk_frames: _CodecFrames | None = None
    stream_first_chunk_frames: _CodecFrames | None = None
    stream_steady_chunk_frames: _CodecFrames | None = None

    @model_validator(mode="after")
    def _one_way_to_name_chunks(self) -> Self:
        sizes = (
            self.stream_chunk_frames,
            self.stream_first_chunk_frames,
            self.stream_steady_chunk_frames,
        )
        if self.stream_chunk_schedule is not None and any(size is not None for size in sizes):
            raise ValueError(
                "stream_chunk_schedule: names every chunk already; leave out the other"
                " stream_*_frames"
            )
        return self


class SpeechBody(GenerationFields):
    """The body of `POST /v1/audio/speech`."""

    input: str
    response_format: ResponseFormat = Field(ResponseFormat.WAV, strict=False)
    stream: bool = False
    stream_format: Literal["audio"] | None = None
    speed: Annotated[float, Field(ge=1.0, le=1.0)] = 1.0
    instruct: str | None = None
    instructions: str | None = None
    non_streaming_mode: bool = True

    @model_validator(mode="after")
    def _something_to_say(self) -> Self:
        if not self.input.strip():
            raise ValueError("input: empty or only white space; there is nothing to say")
        both = {text for text in (self.instruct, self.instructions) if text is not None}
        if len(both) > 1:
            raise ValueError("instruct: differs from instructions; send one of them")
        return self

    @property
    def is_streaming(self) -> bool:
        """Whether each chunk is sent as it is made."""
        return self.stream or self.stream_format is not None

    @property
    def instruction(self) -> str:
        """How to speak, in words; empty where nothing was said."""
        return self.instruct or self.instructions or ""


class StartMessage(GenerationFields):
    """The first message of a session: everything but the text."""

    type: Literal["request.start"]
    response_format: Literal["pcm", "pcm16", "pcm_s16le"] = "pcm"
    instruction: str | None = None
    instruct: str | None = None
    instructions: str | None = None

    @model_validator(mode="after")
    def _one_instruction(self) -> Self:
        given = (self.instruction, self.instruct, self.instructions)
        if sum(text is not None for text in given) > 1:
            raise ValueError("instruct: give one of instruction, instruct, instructions")
        return self

    @property
    def instruction_text(self) -> str:
        """How to speak, in words; empty where nothing was said."""
        return self.instruction or self.instruct or self.instructions or ""


class AppendMessage(_Strict):
    """A piece of text."""

    type: Literal["input_text.append"]
    sequence: Annotated[int, Field(ge=0)]
    text: Annotated[str, Field(min_length=1)]


class EndMessage(_Strict):
    """The end of the text; it counts as one more in the sequence."""

    type: Literal["input_text.end"]
    sequence: Annotated[int, Field(ge=0)]


class CancelMessage(_Strict):
    """Stop speaking."""

    type: Literal["response.cancel"]


_Model = TypeVar("_Model", bound=BaseModel)


def faults_of(error: ValidationError, *, root: str) -> list[Fault]:
    """Pydantic's findings; `root` names what was read (`body`, `message`)."""
    faults = []
    for found in error.errors(include_url=False, include_context=False):
        text = found["msg"].removeprefix("Value error, ")
        where = found["loc"]
        if not where and found["type"] == "value_error":
            where = (text.split(":", 1)[0],)
        value = None if found["type"] == "json_invalid" else found["input"]
        faults.append(Fault(found["type"], (root, *where), text, value))
    return faults


def read_body(model: type[_Model], data: bytes | str, *, root: str = "body") -> _Model:
    """Check JSON against a schema.

    Raises:
        ReplyError: 422 with every fault.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        faults = faults_of(error, root=root)
    first = faults[0]
    name = ".".join(str(part) for part in first.where[1:])
    text = first.text if not name or first.text.startswith(name) else f"{name}: {first.text}"
    raise ReplyError(422, text, code="invalid_request", param=name[:64] or None, faults=faults)
