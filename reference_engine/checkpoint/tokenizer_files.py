"""A small byte-level tokenizer in the official files, for checkpoints without a real one.

It spells everything (all 256 bytes), merges enough to make tokens of several characters and of
several bytes, and has the reserved strings at their real ids. `assistant` and `user` are single
tokens, as the prompt's slices require.
"""

from __future__ import annotations

from reference_engine.model.config import SpecialIds

__all__ = ["byte_symbols", "tokenizer_files"]

# Ids of the real vocabulary, kept for the two words that prompts are built around.
_ROLE_WORDS = {"assistant": 77091, "user": 872}
# Words learnt by heart, earlier ones first; each is spelled by merging from the left.
_WORDS = (
    "assistant", "user", "\n\n", " t", " the", " a", "in", "er", "ing", " and", "ou", "he", "re",
    "ll", " s", " to", "'s", "你", "好", "，", "。", "は", "é", "  ",
)  # fmt: skip


def byte_symbols() -> list[str]:
    """The printable stand-in of every byte, in vocabulary order (GPT-2's table).

    Printable bytes stand for themselves and come first; the others follow, shifted past 255. So
    `!` is token 0 and newline is token 198, as in the real vocabulary.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(rest))]


def _symbol_of_byte() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return dict(zip([*printable, *rest], byte_symbols(), strict=True))


def tokenizer_files(ids: SpecialIds) -> dict[str, object]:
    """vocab.json and tokenizer_config.json as objects, merges.txt as text."""
    symbol_of = _symbol_of_byte()
    end_of_text = _end_of_text(ids)
    vocabulary = {symbol: index for index, symbol in enumerate(byte_symbols())}
    merges: list[str] = []
    next_id = len(vocabulary)
    for word in _WORDS:
        symbols = [symbol_of[byte] for byte in word.encode()]
        merged = symbols[0]
        for symbol in symbols[1:]:
            pair, merged = f"{merged} {symbol}", merged + symbol
            if merged in vocabulary:
                continue
            merges.append(pair)
            real_id = _ROLE_WORDS.get(merged, end_of_text)
            vocabulary[merged] = real_id if real_id < end_of_text else next_id
            next_id += vocabulary[merged] == next_id
    # The official tokenizer numbers control tokens from the vocabulary's size on, so the file has
    # to be as long as the real one: the gaps are filled with entries that no merge can make.
    taken = set(vocabulary.values())
    vocabulary |= {f"<gap-{n}>": n for n in range(end_of_text) if n not in taken}
    return {
        "vocab.json": vocabulary,
        "merges.txt": "#version: 0.2\n" + "\n".join(merges) + "\n",
        "tokenizer_config.json": _tokenizer_config(ids),
    }


def _end_of_text(ids: SpecialIds) -> int:
    """The first control token, which is also the size of vocab.json."""
    return ids.im_start - 1


def _tokenizer_config(ids: SpecialIds) -> dict[str, object]:
    reserved = {
        _end_of_text(ids): "<|endoftext|>",
        ids.im_start: "<|im_start|>",
        ids.im_end: "<|im_end|>",
        ids.tts_pad: "<tts_pad>",
        ids.tts_bos: "<tts_text_bos>",
        ids.tts_eos: "<tts_text_eod>",
    }
    # Without gaps here too, for the same reason.
    for token_id in range(_end_of_text(ids), max(reserved)):
        reserved.setdefault(token_id, f"<|reserved-{token_id}|>")
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "errors": "replace",
        "split_special_tokens": False,
        "model_max_length": 131072,
        "added_tokens_decoder": {
            str(token_id): {
                "content": content,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for token_id, content in sorted(reserved.items())
        },
    }
