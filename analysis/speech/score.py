"""Hear the selected clips of a run and keep every transcript beside its reference.

Writes `derived/transcripts.parquet`: one row a clip, with the settings in the file's metadata, so
that a figure can be traced to its recogniser, weights, rules and draw.

Schema history
    1: first version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.audio import decode
from analysis.errors import AudioDecodeError, RunDataError, UnsupportedAudioError
from analysis.speech.clips import ClipChoice, Selection, select_clips
from analysis.speech.normalise import Normaliser, normaliser_for, raw
from analysis.speech.transcribers import Guard, Transcriber, Transcript, transcribe
from analysis.speech.wer import align, longest_loop
from harness.prompts import PromptSet, load_prompts
from harness.records import RequestRecord
from harness.store import StoredRun, open_run

__all__ = [
    "DEFAULT_MAX_CLIPS",
    "TRANSCRIPTS_FILE",
    "ClipStatus",
    "ScoredRun",
    "load_transcripts",
    "score_run",
]

DEFAULT_MAX_CLIPS = 48
TRANSCRIPTS_FILE = "derived/transcripts.parquet"
SCHEMA_VERSION = 1
_METADATA_KEY = b"earwitness_speech"


class ClipStatus(StrEnum):
    """Whether a selected clip counts towards WER, and if not, why not."""

    SCORED = "scored"
    NO_WORDS = "no_words"  # the text has nothing to say, such as punctuation alone
    NO_AUDIO = "no_audio"  # the recording kept none of this clip, or only its head
    NO_DECODER = "no_decoder"  # a compressed format this installation cannot open


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """The stored transcripts. `settings` says how they came to be."""

    settings: Mapping[str, Any]
    clips: pd.DataFrame


@dataclass(frozen=True, slots=True)
class _Rules:
    """What every clip of one scoring goes through."""

    transcriber: Transcriber
    normaliser: Normaliser
    raw: Normaliser


def score_run(
    folder: Path,
    *,
    transcriber: Transcriber,
    max_clips_per_engine: int = DEFAULT_MAX_CLIPS,
    seed: int = 0,
    tags: Collection[str] = (),
    max_rate_rps: float | None = None,
    point_ids: Collection[str] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> ScoredRun:
    """Draw clips, transcribe them, and write the transcripts.

    Args:
        folder: of a closed run.
        transcriber: who hears; its language chooses the normaliser.
        max_clips_per_engine: upper bound of the draw; fewer where a run has fewer.
        seed: of the draw.
        tags: only prompts that carry all of them.
        max_rate_rps: only points up to this rate.
        point_ids: only these points.
        on_progress: told (clips done, clips in all) after each clip.

    Raises:
        RunDataError: the derived folder cannot be written.
        RunFolderError: the folder holds no closed run.
        ScenarioError: `tags` need a prompt set that is not there any more.
    """
    run = open_run(folder)
    choice = ClipChoice(
        max_clips_per_engine=max_clips_per_engine,
        seed=seed,
        prompt_ids=_tagged_ids(run, tags),
        max_rate_rps=max_rate_rps,
        point_ids=point_ids,
    )
    selection = select_clips(run.requests, run.record.points, choice)
    language = transcriber.info.language
    rules = _Rules(transcriber, normaliser_for(language), raw(language))
    rows = _score_clips(run, selection, rules, on_progress)
    settings = {**_settings(choice, selection, rules), "tags": sorted(tags)}
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    _write(folder / TRANSCRIPTS_FILE, table, settings)
    return ScoredRun(settings, table.to_pandas())


def _score_clips(
    run: StoredRun,
    selection: Selection,
    rules: _Rules,
    on_progress: Callable[[int, int], None] | None,
) -> list[dict[str, Any]]:
    """One row for every selected clip, in the order of the run."""
    num_wanted = len(selection.request_ids)
    engines = {point.point_id: point.engine for point in run.record.points}
    texts = _Texts(run)
    rows: list[dict[str, Any]] = []
    for record, payload in run.iter_records(only=selection.request_ids):
        row = _score_clip(record, payload, texts.of(record), rules)
        rows.append({**row, "engine": engines[record.point_id]})
        if on_progress is not None:
            on_progress(len(rows), num_wanted)
    return rows


def _settings(choice: ClipChoice, selection: Selection, rules: _Rules) -> dict[str, Any]:
    """What a figure rests on, as it is kept with the transcripts."""
    return {
        "schema_version": SCHEMA_VERSION,
        "transcriber": asdict(rules.transcriber.info),
        "normaliser": rules.normaliser.label,
        "unit": rules.normaliser.unit,
        "raw": rules.raw.label,
        "seed": choice.seed,
        "max_clips_per_engine": choice.max_clips_per_engine,
        "max_rate_rps": choice.max_rate_rps,
        "point_ids": None if choice.point_ids is None else sorted(choice.point_ids),
        "num_candidates": dict(selection.num_candidates),
    }


def load_transcripts(folder: Path) -> ScoredRun | None:
    """What `score_run` wrote, or None where it never ran.

    Raises:
        RunDataError: the file is damaged or of another schema.
    """
    path = folder / TRANSCRIPTS_FILE
    if not path.is_file():
        return None
    try:
        table = pq.read_table(path)
        settings = json.loads(table.schema.metadata[_METADATA_KEY])
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError, OSError) as failure:
        raise RunDataError(f"{path}: not a transcripts table ({failure}); score again") from failure
    if settings.get("schema_version") != SCHEMA_VERSION:
        raise RunDataError(
            f"{path}: schema {settings.get('schema_version')}, expected {SCHEMA_VERSION};"
            " score again"
        )
    return ScoredRun(settings, table.to_pandas())


class _Texts:
    """The text of a request: recorded with it, else looked up in its prompt set."""

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._prompts: PromptSet | None = None

    def of(self, record: RequestRecord) -> str:
        if record.text:
            return record.text
        if self._prompts is None:
            self._prompts = load_prompts(_prompt_set_name(self._run))
        return self._prompts[record.prompt_id].text


def _prompt_set_name(run: StoredRun) -> str:
    prompts = run.record.scenario.get("prompts", {})
    name = prompts.get("set")
    if not isinstance(name, str):
        raise RunDataError(
            f"{run.folder}/run.json: scenario.prompts.set: found {name!r}, not a name"
        )
    return name


def _tagged_ids(run: StoredRun, tags: Collection[str]) -> frozenset[str] | None:
    """Ids of prompts that carry all of `tags`; None where every prompt may be drawn."""
    asked = set(run.record.scenario.get("prompts", {}).get("tags") or ())
    if asked >= set(tags):
        return None  # the scenario sent no others
    found = load_prompts(_prompt_set_name(run), tags=sorted(tags))
    return frozenset(prompt.id for prompt in found.prompts)


def _score_clip(
    record: RequestRecord, payload: bytes | None, text: str, rules: _Rules
) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = dict.fromkeys(_SCHEMA.names)
    reference = rules.normaliser(text)
    row |= {
        "request_id": record.request_id,
        "point_id": record.point_id,
        "prompt_id": record.prompt_id,
        "reference": text,
        "reference_normalised": reference,
    }
    if not reference.split():
        return row | {"status": str(ClipStatus.NO_WORDS)}
    # An empty reply is stored as no payload; it is heard as silence, not skipped.
    payload = payload or b""
    if len(payload) < sum(chunk.num_bytes for chunk in record.chunks):
        return row | {"status": str(ClipStatus.NO_AUDIO)}
    try:
        heard = _hear(record, payload, rules.transcriber)
    except UnsupportedAudioError:
        return row | {"status": str(ClipStatus.NO_DECODER)}
    return row | _scored(text, reference, heard, rules)


def _hear(record: RequestRecord, payload: bytes, transcriber: Transcriber) -> Transcript:
    """Decode and transcribe; bytes that are no audio are an empty transcript, not a skip."""
    if record.format is None or not payload:
        return Transcript("", Guard.TOO_SHORT, 0.0, 0.0, 0, None, None)
    sizes = [chunk.num_bytes for chunk in record.chunks]
    try:
        audio = decode(payload, record.format, chunk_sizes=sizes)
    except AudioDecodeError:
        return Transcript("", Guard.UNDECODABLE, 0.0, 0.0, 0, None, None)
    if audio.sample_rate_hz is None:
        return Transcript("", Guard.TOO_SHORT, 0.0, 0.0, 0, None, None)
    return transcribe(transcriber, audio.samples, audio.sample_rate_hz)


def _scored(text: str, reference: str, heard: Transcript, rules: _Rules) -> dict[str, Any]:
    transcript = rules.normaliser(heard.text)
    normalised = align(reference, transcript)
    as_written = rules.raw(text)
    # "&" has a word to say, but none as written: the figure before normalisation goes without it.
    raw_found = align(as_written, rules.raw(heard.text)) if as_written else None
    loops = longest_loop(transcript.split())
    return {
        "status": str(ClipStatus.SCORED),
        "guard": str(heard.guard),
        "transcript": heard.text,
        "transcript_normalised": transcript,
        "num_words": normalised.num_words,
        "substitutions": normalised.substitutions,
        "deletions": normalised.deletions,
        "insertions": normalised.insertions,
        "tail_deletions": normalised.tail_deletions,
        "wer": normalised.wer,
        "raw_num_words": raw_found.num_words if raw_found else None,
        "raw_edits": raw_found.num_edits if raw_found else None,
        "raw_wer": raw_found.wer if raw_found else None,
        # A text that itself repeats ("no, no, no, no") is not a fault of the voice.
        "loop_repeats": 0 if loops <= longest_loop(reference.split()) else loops,
        "duration_s": heard.duration_s,
        "heard_s": heard.heard_s,
        "num_windows": heard.num_windows,
        "mean_logprob": heard.mean_logprob,
        "no_speech_probability": heard.no_speech_probability,
    }


_SCHEMA = pa.schema(
    [
        ("request_id", pa.string()),
        ("point_id", pa.string()),
        ("engine", pa.string()),
        ("prompt_id", pa.string()),
        ("status", pa.string()),
        ("guard", pa.string()),
        ("reference", pa.string()),
        ("transcript", pa.string()),
        ("reference_normalised", pa.string()),
        ("transcript_normalised", pa.string()),
        ("num_words", pa.int32()),
        ("substitutions", pa.int32()),
        ("deletions", pa.int32()),
        ("insertions", pa.int32()),
        ("tail_deletions", pa.int32()),
        ("wer", pa.float64()),
        ("raw_num_words", pa.int32()),
        ("raw_edits", pa.int32()),
        ("raw_wer", pa.float64()),
        ("loop_repeats", pa.int32()),
        ("duration_s", pa.float64()),
        ("heard_s", pa.float64()),
        ("num_windows", pa.int32()),
        ("mean_logprob", pa.float64()),
        ("no_speech_probability", pa.float64()),
    ]
)


def _write(path: Path, table: pa.Table, settings: Mapping[str, Any]) -> None:
    metadata = {_METADATA_KEY: json.dumps(settings, allow_nan=False).encode()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        pq.write_table(table.replace_schema_metadata(metadata), partial)
        partial.replace(path)
    except OSError as failure:
        raise RunDataError(f"{path}: cannot be written: {failure.strerror}") from failure
