"""OpenAI's Whisper on this machine's CPU, greedy and repeatable."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from analysis.errors import MissingExtraError, WeightsError
from analysis.speech.transcribers import (
    RECOGNISER_RATE_HZ,
    Recognised,
    Samples,
    TranscriberInfo,
)
from analysis.speech.weights import INSTALL_HINT, Weights
from analysis.speech.windows import HeardWord

__all__ = ["WhisperTranscriber"]

# The length of audio that one call hears, whatever it is given (`whisper.audio.CHUNK_LENGTH`).
_WINDOW_S = 30.0
_RETRY_BEAMS = 5


class WhisperTranscriber:
    """A `Transcriber` on `openai-whisper`; float32, temperature 0, no fallback to sampling."""

    def __init__(self, weights: Weights, *, language: str = "en", num_threads: int = 1) -> None:
        """Load the model once.

        Args:
            weights: from `analysis.speech.weights.find_weights`.
            language: code of the clips' language; an English-only model takes `en` alone.
            num_threads: of torch, for this whole process.

        Raises:
            MissingExtraError: openai-whisper or torch is not installed.
            WeightsError: the file does not hold a Whisper model, or not one for this language.
        """
        try:
            import torch
            import whisper
        except ModuleNotFoundError as missing:
            raise MissingExtraError(
                f"word error rate needs Whisper ({missing.name} is missing): {INSTALL_HINT}"
            ) from missing
        torch.set_num_threads(num_threads)
        self._whisper = whisper
        self._model = _load(weights.path)
        if not self._model.is_multilingual and language != "en":
            raise WeightsError(
                f"Whisper {weights.model!r} knows English alone, the clips are {language!r};"
                " name weights of a multilingual model with --whisper-weights"
            )
        self._set_alignment_heads(weights.model)
        self._load_tokenizer(language)
        self._language = language
        self._info = TranscriberInfo(
            name="openai-whisper",
            version=str(whisper.__version__),
            model=weights.model,
            weights_sha256=weights.origin_sha256,
            language=language,
            max_window_s=_WINDOW_S,
        )

    @property
    def info(self) -> TranscriberInfo:
        """Name, version, weights, language, longest audio of one call."""
        return self._info

    def recognise(
        self, samples: Samples, sample_rate_hz: int, *, with_times: bool, is_retry: bool
    ) -> Recognised:
        """One call on at most 30 s of float32 mono at 16 kHz."""
        assert sample_rate_hz == RECOGNISER_RATE_HZ, "callers resample"
        assert len(samples) <= _WINDOW_S * RECOGNISER_RATE_HZ, "callers cut windows"
        beams = _RETRY_BEAMS if is_retry else None
        if with_times:
            return self._with_times(samples, beams)
        mel = self._whisper.log_mel_spectrogram(
            self._whisper.pad_or_trim(samples), n_mels=self._model.dims.n_mels
        )
        options = self._whisper.DecodingOptions(
            language=self._language,
            temperature=0.0,
            beam_size=beams,
            without_timestamps=True,
            fp16=False,
        )
        result = self._whisper.decode(self._model, mel, options)
        return Recognised(
            text=str(result.text),
            mean_logprob=_finite(result.avg_logprob),
            no_speech_probability=_finite(result.no_speech_prob),
        )

    def _with_times(self, samples: Samples, beams: int | None) -> Recognised:
        found = self._model.transcribe(
            samples,
            language=self._language,
            temperature=0.0,
            beam_size=beams,
            word_timestamps=True,
            condition_on_previous_text=False,
            fp16=False,
            verbose=None,
        )
        segments: list[dict[str, Any]] = found["segments"]
        return Recognised(
            text=str(found["text"]),
            words=tuple(
                HeardWord(str(word["word"]).strip(), float(word["start"]), float(word["end"]))
                for segment in segments
                for word in segment["words"]
            ),
            mean_logprob=min((float(each["avg_logprob"]) for each in segments), default=None),
            no_speech_probability=max(
                (float(each["no_speech_prob"]) for each in segments), default=None
            ),
        )

    def _set_alignment_heads(self, model: str) -> None:
        """Official names carry the attention heads that follow time; a bare file does not."""
        heads = self._whisper._ALIGNMENT_HEADS.get(model)
        if heads is not None:
            self._model.set_alignment_heads(heads)

    def _load_tokenizer(self, language: str) -> None:
        """Fill Whisper's own cache of tokenizers now: it leaves the vocabulary file open."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            self._whisper.tokenizer.get_tokenizer(
                self._model.is_multilingual,
                num_languages=self._model.num_languages,
                language=language,
                task="transcribe",
            )


def _load(path: Path) -> Any:
    """A checkpoint as a model. Only tensors are unpickled, never code.

    `whisper.load_model` does the same but opens by model name first, so a file that is named
    like a model would be a download.
    """
    import torch
    from whisper.model import ModelDimensions, Whisper

    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        model = Whisper(ModelDimensions(**checkpoint["dims"]))
        model.load_state_dict(checkpoint["model_state_dict"])
    except (
        KeyError,
        TypeError,
        RuntimeError,
        EOFError,
        ValueError,
        pickle.UnpicklingError,
    ) as failure:
        reason = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
        raise WeightsError(f"{path}: not a Whisper checkpoint ({reason})") from failure
    return model.float().eval()


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
