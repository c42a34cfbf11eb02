"""From what was recorded to what it means: one pass over a run, written to `derived/`.

Recorded files are only read. `derived/chunks.parquet` and `derived/requests.parquet` carry the
settings they were made with; asked again with the same settings and the same recording, they are
read instead of made.

Schema history
    1: first version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.codecs import decoder_version
from analysis.derive_parts import MIN_PART, derive_in_parts
from analysis.derived_rows import DerivedTables, context_of, derive_records
from analysis.errors import RunDataError
from analysis.metrics import request_metrics
from analysis.view import AnalysisSettings
from harness.records import RunStatus
from harness.store import StoredRun, open_run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DERIVED_DIR", "DerivedRun", "derive_run", "load_derived"]

DERIVED_DIR = "derived"
_METADATA_KEY = b"earwitness.derived"
_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class DerivedRun:
    """The derived tables of one run, as pandas frames, and the settings behind them.

    requests: one row a request, in the order of the plan: outcome, onset, every request metric.
    chunks: one row a delivery: samples, due time, slack, stall.
    """

    requests: pd.DataFrame
    chunks: pd.DataFrame
    settings: AnalysisSettings


def derive_run(
    folder: Path,
    *,
    settings: AnalysisSettings | None = None,
    is_stored: bool = True,
    num_processes: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> DerivedRun:
    """Derive every request and chunk of a run.

    Args:
        folder: a run folder; one that is still being written is read as far as it goes.
        settings: how to read it; the default ones if None.
        is_stored: write `derived/`. False answers "what if" questions and leaves it alone.
        num_processes: that may share the work of a long run. More than one are spawned, so a
            script that asks for them must be importable (`if __name__ == "__main__"`).
        on_progress: told (requests done, requests in all), now and then.

    Raises:
        RunFolderError: no readable run folder.
        RunDataError: `derived/` cannot be written, or has to be made but the audio is elsewhere.
    """
    settings = settings or AnalysisSettings()
    run = open_run(folder)
    stamp = _stamp(run, settings)
    if is_stored:
        cached = _read_cached(folder, stamp, settings)
        if cached is not None:
            return cached
    _check_audio(run)
    tables = _derive(run, settings, num_processes=num_processes, on_progress=on_progress)
    if is_stored:
        _write(folder, tables, stamp)
    return DerivedRun(_frame(tables.requests), _frame(tables.chunks), settings)


def _derive(
    run: StoredRun,
    settings: AnalysisSettings,
    *,
    num_processes: int,
    on_progress: Callable[[int, int], None] | None,
) -> DerivedTables:
    request_ids = run.requests["request_id"].tolist()

    def tell(num_done: int) -> None:
        if on_progress is not None:
            on_progress(num_done, len(request_ids))

    # What is still being written would be another run to each of several readers.
    is_shared = run.record.status is not RunStatus.RUNNING and len(request_ids) > 2 * MIN_PART
    if num_processes > 1 and is_shared:
        return derive_in_parts(
            run.folder, settings, request_ids, num_processes=num_processes, on_progress=tell
        )
    return derive_records(run.iter_records(), context_of(run.record, settings), tell)


def _check_audio(run: StoredRun) -> None:
    """A run may travel without its audio, as long as nothing in it has to be measured anew."""
    recorded = run.requests["audio_file"].dropna()
    if len(recorded) and not (run.folder / recorded.iloc[0]).parent.is_dir():
        raise RunDataError(
            f"{run.folder}: has to be measured anew, for other settings or by newer rules than its"
            f" {DERIVED_DIR}/, but its recorded audio is not here; copy the run's whole folder"
        )


def load_derived(folder: Path, *, settings: AnalysisSettings | None = None) -> DerivedRun | None:
    """The stored derived tables, or None where there are none for these settings.

    Raises:
        RunFolderError: no readable run folder.
    """
    settings = settings or AnalysisSettings()
    return _read_cached(folder, _stamp(open_run(folder), settings), settings)


# -- files ----------------------------------------------------------------------------------------


def _stamp(run: StoredRun, settings: AnalysisSettings) -> bytes:
    """What the derived tables depend on, to be stored with them and compared."""
    names = [metric.name for metric in request_metrics()]
    return json.dumps(
        {
            "schema_version": _SCHEMA_VERSION,
            "settings": settings.digest(),
            "recorded": _recording_digest(run.folder),
            "metrics": names,
            # With another decoder, or one where there was none, replies are measured anew.
            "decoder": decoder_version(),
        },
        sort_keys=True,
    ).encode()


def _recording_digest(folder: Path) -> str:
    """Of what was recorded, not of when its files were written: a copy is the same run."""
    digest = hashlib.sha256()
    for name in ("requests.parquet", "chunks.parquet"):
        path = folder / name
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()


def _read_cached(folder: Path, stamp: bytes, settings: AnalysisSettings) -> DerivedRun | None:
    tables = []
    for name in ("requests", "chunks"):
        path = folder / DERIVED_DIR / f"{name}.parquet"
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowInvalid):
            return None  # absent or half written: made anew
        if (table.schema.metadata or {}).get(_METADATA_KEY) != stamp:
            return None
        tables.append(table)
    return DerivedRun(_frame(tables[0]), _frame(tables[1]), settings)


def _write(folder: Path, tables: DerivedTables, stamp: bytes) -> None:
    target = folder / DERIVED_DIR
    try:
        target.mkdir(exist_ok=True)
        for name, table in (("requests", tables.requests), ("chunks", tables.chunks)):
            partial = target / f"{name}.partial"
            pq.write_table(table.replace_schema_metadata({_METADATA_KEY: stamp}), partial)
            # Whole or not at all, so that a reader never meets half a table.
            partial.replace(target / f"{name}.parquet")
    except OSError as fault:
        raise RunDataError(f"{target}: cannot be written: {fault.strerror or fault}") from None


def _frame(table: pa.Table) -> pd.DataFrame:
    """A pandas frame in which whole numbers stay whole and null stays null."""
    import pandas as pd

    kinds = {
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame: pd.DataFrame = table.to_pandas(types_mapper=kinds.get)
    return frame
