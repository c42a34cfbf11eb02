"""What the talker is shown before it speaks: rows of text and codec ids, in either layout.

Every row adds a text embedding and a codec embedding. The last row of a prompt is not prefilled:
its codec side is always `codec_bos` and its text side is text row 0, so it runs as the first codec
frame. In the streaming-text layout that is the first token of the text, and one more follows with
each codec frame; in the whole-text layout the text is prefilled and only padding follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from reference_engine.errors import PromptError
from reference_engine.model.config import AUTO_LANGUAGE, ModelConfig
from reference_engine.model.text.stream import body_ids
from reference_engine.model.text.tokenizer import TextTokenizer

__all__ = ["Prompt", "PromptBuilder", "TextLayout", "VoiceChoice"]

# The language whose speech a dialect voice colours; `auto` counts as it.
_DIALECT_LANGUAGE = "chinese"


class TextLayout(Enum):
    """Where the text stands: beside the codec frames, or whole before them."""

    STREAMING = "streaming"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class VoiceChoice:
    """A voice and a language that belong together, as ids of the codec vocabulary."""

    speaker: str
    speaker_id: int
    language_id: int | None  # None: no language tag, the model guesses


@dataclass(frozen=True, slots=True)
class Prompt:
    """Rows to prefill, and the text rows that go with the codec frames."""

    voice: VoiceChoice
    # Rows to prefill, top to bottom; a codec id of `no_code` adds nothing.
    text_ids: tuple[int, ...]
    codec_ids: tuple[int, ...]
    # Text rows of codec frame 0, 1, ...; after them the row is tts_pad for ever. Without its
    # closing tts_eos where the text is still arriving.
    text_rows: tuple[int, ...]
    # Whether the first rows are those of every prompt of this voice and language.
    has_common_prefix: bool

    @property
    def num_rows(self) -> int:
        """Talker positions the prefill takes."""
        return len(self.text_ids)


class PromptBuilder:
    """Builds prompts for one checkpoint; immutable."""

    def __init__(self, config: ModelConfig, tokenizer: TextTokenizer) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._role = tokenizer.encode("<|im_start|>assistant\n")

    @property
    def tts_eos(self) -> int:
        """The text row that closes a text."""
        return self._config.ids.tts_eos

    def voice(self, speaker: str, language: str = AUTO_LANGUAGE) -> VoiceChoice:
        """Resolve a voice and a language by name, upper or lower case.

        A dialect voice asked for Chinese, or for no language, speaks its dialect.

        Raises:
            PromptError: a name the checkpoint does not know, with the nearest it does.
        """
        config = self._config
        name = _known("voice", speaker, config.speakers)
        wanted = _known("language", language, config.public_languages)
        dialect = config.dialects.get(name)
        if dialect is not None and wanted in (_DIALECT_LANGUAGE, AUTO_LANGUAGE):
            wanted = dialect
        return VoiceChoice(
            speaker=name,
            speaker_id=config.speakers[name],
            language_id=None if wanted == AUTO_LANGUAGE else config.languages[wanted],
        )

    def build(
        self, text: str, voice: VoiceChoice, *, layout: TextLayout, instruct: str = ""
    ) -> Prompt:
        """Lay out a text that is known whole.

        Raises:
            PromptError: nothing to say, or a control token in text or instruction.
        """
        ids = body_ids(self._tokenizer, text)
        opening = self.open(voice, instruct=instruct)
        eos = self._config.ids.tts_eos
        if layout is TextLayout.STREAMING:
            return _with_rows(opening, text_rows=(*ids, eos))
        pad = self._config.ids.codec_pad
        return Prompt(
            voice=voice,
            text_ids=(*opening.text_ids, *ids, eos),
            codec_ids=(*opening.codec_ids, *(pad for _ in range(len(ids) + 1))),
            text_rows=(),
            has_common_prefix=opening.has_common_prefix,
        )

    def open(self, voice: VoiceChoice, *, instruct: str = "") -> Prompt:
        """The rows before any text: all that a text still arriving needs to begin with.

        The caller appends the ids of a `TextStream` as text rows, then `tts_eos`.

        Raises:
            PromptError: a control token in the instruction.
        """
        ids = self._config.ids
        tags: tuple[int, ...]
        if voice.language_id is None:
            tags = (ids.codec_nothink, ids.codec_think_bos, ids.codec_think_eos)
        else:
            tags = (ids.codec_think, ids.codec_think_bos, voice.language_id, ids.codec_think_eos)
        plain = (*self._instruct_ids(instruct), *self._role)
        codec = (*tags, voice.speaker_id, ids.codec_pad)
        return Prompt(
            voice=voice,
            text_ids=(*plain, *(ids.tts_pad for _ in range(len(codec) - 1)), ids.tts_bos),
            codec_ids=(*(self._config.talker.vocab_size for _ in plain), *codec),
            text_rows=(),
            has_common_prefix=len(plain) == len(self._role),
        )

    def _instruct_ids(self, instruct: str) -> tuple[int, ...]:
        """An instruction's rows; none where it is empty or the model takes none."""
        if not instruct or not self._config.takes_instructions:
            return ()
        self._tokenizer.check_speakable(instruct, what="instruction")
        return self._tokenizer.encode(f"<|im_start|>user\n{instruct}<|im_end|>\n")


def _with_rows(prompt: Prompt, *, text_rows: tuple[int, ...]) -> Prompt:
    return Prompt(
        voice=prompt.voice,
        text_ids=prompt.text_ids,
        codec_ids=prompt.codec_ids,
        text_rows=text_rows,
        has_common_prefix=prompt.has_common_prefix,
    )


def _known(what: str, name: str, known: Iterable[str]) -> str:
    """Lower-cased name, or an error that lists what there is."""
    wanted = name.lower()
    names = sorted(known)
    if wanted in names:
        return wanted
    near = get_close_matches(wanted, names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise PromptError(f"{what}: {name!r} is not one of {', '.join(names)}{hint}")
