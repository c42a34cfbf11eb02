"""Is it speech, and is it the right words: recognition, normalisation, word error rate.

Importing this package loads no recogniser; torch and Whisper come in with `open_whisper`.
"""

from __future__ import annotations

import os
from pathlib import Path

from analysis.speech.score import DEFAULT_MAX_CLIPS, ScoredRun, load_transcripts, score_run
from analysis.speech.summary import summarise_wer, wer_not_measured, wer_of_points
from analysis.speech.transcribers import Transcriber
from analysis.speech.weights import DEFAULT_MODEL, cache_folder, find_weights

__all__ = [
    "DEFAULT_MAX_CLIPS",
    "DEFAULT_MODEL",
    "ScoredRun",
    "load_transcripts",
    "open_whisper",
    "score_run",
    "summarise_wer",
    "wer_not_measured",
    "wer_of_points",
]


def open_whisper(
    model: str = DEFAULT_MODEL,
    *,
    weights: Path | None = None,
    allow_download: bool = False,
    language: str = "en",
    num_threads: int = 1,
) -> Transcriber:
    """Whisper on this machine, with weights from a path, the cache, the package or a download.

    Raises:
        MissingExtraError: the `whisper` extra is not installed.
        WeightsError: no weights, or damaged ones.
    """
    from analysis.speech.whisper_local import WhisperTranscriber

    found = find_weights(
        model, cache=cache_folder(os.environ), path=weights, allow_download=allow_download
    )
    return WhisperTranscriber(found, language=language, num_threads=num_threads)
