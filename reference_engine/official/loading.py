"""Load and run the official package; meant for the interpreter of `.venv-oracle` alone."""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from typing import Any

import torch
from torch import Tensor

__all__ = ["GREEDY", "generate_codes", "load_official"]

GREEDY: Mapping[str, object] = {"do_sample": False, "subtalker_dosample": False}

# Imported by the package for its 25 Hz tokenizer, which is never used here.
_UNUSED = (
    "sox",
    "onnxruntime",
    "torchaudio",
    "torchaudio.compliance",
    "torchaudio.compliance.kaldi",
)


def load_official(folder: str, *, dtype: str = "float32", attention: str = "eager") -> Any:
    """Load a checkpoint on the CPU; unless told otherwise in fp32 with plain attention."""
    warnings.filterwarnings("ignore")
    # First, because it looks for the very packages that are replaced next.
    importlib.import_module("transformers").logging.set_verbosity_error()
    for name in _UNUSED:
        _put_empty_module(name)
    package = importlib.import_module("qwen_tts")
    return package.Qwen3TTSModel.from_pretrained(
        folder, dtype=getattr(torch, dtype), attn_implementation=attention
    )


def generate_codes(model: Any, **arguments: object) -> list[Tensor]:
    """Run the official wrapper and catch the codes [frames, 16] on their way to the codec."""
    caught: list[Tensor] = []
    tokenizer = model.model.speech_tokenizer
    decode = tokenizer.decode

    def catch(items: list[Mapping[str, Tensor]]) -> tuple[list[object], int]:
        caught.extend(item["audio_codes"] for item in items)
        return [], 24_000

    tokenizer.decode = catch
    try:
        model.generate_custom_voice(**arguments)
    finally:
        tokenizer.decode = decode
    return caught


def _put_empty_module(name: str) -> None:
    module = types.ModuleType(name)
    module.__path__ = []
    module.__spec__ = ModuleSpec(name, None)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
