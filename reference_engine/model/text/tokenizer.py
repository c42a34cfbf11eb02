"""The checkpoint's byte-level tokenizer, from vocab.json, merges.txt and tokenizer_config.json.

Built with the `tokenizers` library directly; the steps are those into which the official package
turns the same files: NFC, split into pieces by one pattern, bytes to symbols, merges per piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE

from reference_engine.errors import CheckpointError, PromptError
from reference_engine.model.config import ModelConfig
from reference_engine.model.json_section import read_json

__all__ = ["TextTokenizer", "load_tokenizer"]

# Source: the Qwen2 tokenizer. A piece is a contraction, letters with at most one sign before them,
# one digit, a run of signs with the line breaks after it, or a run of white space.
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class TextTokenizer:
    """Text to token ids; immutable after loading.

    `reserved` are the strings that stand for control tokens and so may not occur in what a caller
    asks to have spoken.
    """

    def __init__(self, tokenizer: Tokenizer, *, reserved: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._split = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
        self._bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self.reserved = tuple(sorted(reserved))

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a whole string; reserved strings become their control tokens."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def normalise(self, text: str) -> str:
        """Text as the pieces are cut from it (NFC)."""
        return str(self._tokenizer.normalizer.normalize_str(text))

    def pieces(self, normalised: str) -> list[str]:
        """Cut normalised text; tokens never span two pieces."""
        return [piece for piece, _ in self._split.pre_tokenize_str(normalised)]

    def piece_ids(self, piece: str) -> list[int]:
        """Ids of one piece; they depend on nothing outside it."""
        symbols = "".join(part for part, _ in self._bytes.pre_tokenize_str(piece))
        return [token.id for token in self._tokenizer.model.tokenize(symbols)]

    def find_reserved(self, text: str) -> str | None:
        """The first reserved string inside `text`, if any."""
        return next((name for name in self.reserved if name in text), None)

    def check_speakable(self, text: str, *, what: str) -> None:
        """Raise `PromptError` where a text holds a control token or is not valid Unicode."""
        found = self.find_reserved(text)
        if found is not None:
            raise PromptError(f"{what}: holds the control token {found!r}; remove it")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise PromptError(
                f"{what}: character {error.start} is half of a surrogate pair, not text"
            ) from None


def load_tokenizer(folder: Path, config: ModelConfig) -> TextTokenizer:
    """Read the tokenizer of a checkpoint and check it against the config's ids.

    Raises:
        CheckpointError: a file is missing or damaged, a control token has another id than
            config.json says, ids exceed the text vocabulary, or the role is not three tokens.
    """
    vocabulary = _vocabulary(folder / "vocab.json", below=config.talker.text_vocab_size)
    reserved = _reserved(folder / "tokenizer_config.json", config)
    try:
        model = BPE(
            # The library keeps the id of an added token only where the vocabulary has it already.
            vocab=vocabulary | {content: index for index, content in reserved.items()},
            merges=_merges(folder / "merges.txt"),
            continuing_subword_prefix="",
            end_of_word_suffix="",
        )
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(
            f"{folder / 'merges.txt'}: does not fit vocab.json ({error})"
        ) from error
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(content, normalized=False, special=True) for content in reserved.values()]
    )
    loaded = TextTokenizer(tokenizer, reserved=tuple(reserved.values()))
    role = loaded.encode("<|im_start|>assistant\n")
    if len(role) != 3 or role[0] != config.ids.im_start:
        raise CheckpointError(
            f"{folder / 'vocab.json'}: the role line is {list(role)}, expected three tokens from "
            f"{config.ids.im_start}; the vocabulary is of another model"
        )
    return loaded


def _vocabulary(path: Path, *, below: int) -> dict[str, int]:
    section = read_json(path)
    # One pass over 151,000 entries: a check per entry, not a call.
    table: dict[str, int] = {
        symbol: index
        for symbol, index in section.values.items()
        if isinstance(index, int) and 0 <= index < below
    }
    if len(table) != len(section.values):
        wrong = next(symbol for symbol in section.values if symbol not in table)
        section.id(wrong, below=below)
    missing = [symbol for symbol in pre_tokenizers.ByteLevel.alphabet() if symbol not in table]
    if missing:
        raise CheckpointError(f"{path}: lacks {len(missing)} of the 256 byte symbols")
    return table


def _merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise CheckpointError(f"{path}: not found") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8 ({error})") from error
    merges = []
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#version"):
            continue
        pair = line.split(" ")
        if len(pair) != 2:
            raise CheckpointError(f"{path}: line {number}: {line!r} is not two symbols")
        merges.append((pair[0], pair[1]))
    return merges


def _reserved(path: Path, config: ModelConfig) -> dict[int, str]:
    """Control tokens by id, those that the prompt is built from checked."""
    section = read_json(path).section("added_tokens_decoder")
    entries = {}
    for key in section.values:
        entry = section.section(key)
        if not key.isdigit() or int(key) >= config.talker.text_vocab_size:
            raise section.fail(
                key, f"is not an id below the vocabulary of {config.talker.text_vocab_size}"
            )
        entries[int(key)] = entry.text("content")
    for name, wanted in (("im_start", config.ids.im_start), ("im_end", config.ids.im_end)):
        if entries.get(wanted) != f"<|{name}|>":
            raise section.fail(
                str(wanted), f"is {entries.get(wanted)!r}, expected '<|{name}|>' (config.json)"
            )
    for name in ("tts_pad", "tts_bos", "tts_eos"):
        if getattr(config.ids, name) not in entries:
            raise section.fail(
                str(getattr(config.ids, name)), f"is missing; config.json names it as {name}"
            )
    return entries
