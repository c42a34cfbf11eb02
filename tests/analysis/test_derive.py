"""Deriving a run folder: tables, cache, and a headline figure recomputed by other means."""

from __future__ import annotations

import json
import math
import random
import shutil
import struct

import pyarrow.parquet as pq
import pytest

from analysis.derive import derive_run, load_derived
from analysis.errors import RunDataError
from analysis.onset import NARI_V1
from analysis.playback import delay_ms
from analysis.view import AnalysisSettings
from engines.outcomes import TransportOutcome
from harness.records import Phase, RunKind
from tests.builders.audio import clip, pcm16, silence, tone
from tests.builders.runs import chunks_of, ms, record, run_folder
from tests.builders.views import delivered


def spoken(index: int, pieces, **fields):
    chunks, payload = delivered(pieces)
    return record(index=index, chunks=chunks, **fields), payload


def test_derived_tables_hold_one_row_a_request_and_a_chunk(tmp_path):
    """Two requests, three deliveries; whole numbers stay whole."""
    folder = run_folder(
        tmp_path,
        [
            spoken(0, [(20, silence(400)), (600, tone(500))]),
            spoken(1, [(20, tone(300))]),
        ],
    )
    derived = derive_run(folder)

    assert [12_000, 7200] == [derived.chunks["num_samples"][1], derived.chunks["num_samples"][2]]
    assert [0, 180_000_000, 0] == derived.chunks["stall_ns"].tolist()
    assert [None, 420_000_000, None] == [
        None if value is derived.chunks["due_ns"].dtype.na_value else value
        for value in derived.chunks["due_ns"]
    ]
    assert "Int64" == derived.requests["onset_sample"].dtype.name
    assert ["ok", "ok"] == derived.requests["outcome"].tolist()


def test_chunk_that_came_after_the_cancel_was_not_played(tmp_path):
    """It has samples, but no due time, no moment of play and no stall."""
    hung_up = {"transport_outcome": TransportOutcome.CANCELLED, "cancel_ns": ms(300)}
    folder = run_folder(tmp_path, [spoken(0, [(20, tone(100)), (600, tone(100))], **hung_up)])
    late = derive_run(folder).chunks.iloc[1]

    assert 2400 == late["num_samples"]
    assert late[["due_ns", "slack_ns", "play_ns", "stall_ns", "is_undecided"]].isna().all()


def test_stored_tables_are_read_again_for_the_same_settings(tmp_path):
    """Nothing is decoded twice."""
    folder = run_folder(tmp_path, [spoken(0, [(20, tone(300))])])
    first = derive_run(folder)
    payload = next((folder / "audio").iterdir())
    payload.unlink()

    assert first.requests.equals(derive_run(folder).requests)


def test_copy_of_a_run_without_its_audio_keeps_its_figures(tmp_path):
    """What counts is what was recorded, not when its files were written."""
    folder = run_folder(tmp_path, [spoken(0, [(20, tone(300))])])
    first = derive_run(folder)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("audio"), copy_function=shutil.copy)

    assert first.requests.equals(derive_run(copy).requests)


def test_copy_without_audio_says_so_when_it_has_to_be_measured_anew(tmp_path):
    """Other settings need the samples."""
    folder = run_folder(tmp_path, [spoken(0, [(20, tone(300))])])
    derive_run(folder)
    shutil.rmtree(folder / "audio")

    with pytest.raises(RunDataError, match="recorded audio is not here; copy the run's whole"):
        derive_run(folder, settings=AnalysisSettings(onset=NARI_V1))


def test_other_settings_are_derived_anew(tmp_path):
    """Stored figures of one onset rule never pass for another's."""
    folder = run_folder(tmp_path, [spoken(0, [(20, silence(105)), (30, tone(300))])])
    ours = derive_run(folder).requests["onset_sample"][0]
    nari = AnalysisSettings(onset=NARI_V1)

    assert load_derived(folder, settings=nari) is None
    assert 90 * 24 == derive_run(folder, settings=nari).requests["onset_sample"][0] < ours


def test_what_if_leaves_the_folder_alone(tmp_path):
    """A start rule is tried without a trace."""
    folder = run_folder(tmp_path, [spoken(0, [(20, silence(400)), (600, tone(500))])])
    settings = AnalysisSettings(start=delay_ms(180))
    derived = derive_run(folder, settings=settings, is_stored=False)

    assert 0 == derived.requests["stall_total"][0]
    assert not (folder / "derived").exists()


def test_damaged_derived_table_is_made_anew(tmp_path):
    """Half a file is no file."""
    folder = run_folder(tmp_path, [spoken(0, [(20, tone(300))])])
    first = derive_run(folder)
    (folder / "derived" / "chunks.parquet").write_bytes(b"PAR1")

    assert first.chunks.equals(derive_run(folder).chunks)


def test_simulated_run_needs_no_audio(tmp_path):
    """Onset known, samples counted from bytes; warm-up is derived too."""
    records = [
        record(
            index=i,
            phase=Phase.WARMUP if i == 0 else Phase.MEASURE,
            chunks=chunks_of([(20, 19_200), (300, 24_000)]),
            known_onset_sample=9600,
        )
        for i in range(3)
    ]
    derived = derive_run(run_folder(tmp_path, records, kind=RunKind.SIMULATED))

    assert [420.0] * 3 == derived.requests["audible_ttfa"].tolist()
    assert derived.requests["clipped_share"].isna().all()


def test_incremental_text_is_known_from_the_scenario(tmp_path):
    """A request that was never sent is still one of the incremental ones."""
    folder = run_folder(
        tmp_path, [record()], scenario={"text_pacing": {"mode": "words", "rate_per_s": 5.0}}
    )

    assert [True] == derive_run(folder).requests["is_incremental"].tolist()


def test_derived_files_say_how_they_were_made(tmp_path):
    """The settings' digest and the metrics' names are in the file."""
    folder = run_folder(tmp_path, [spoken(0, [(20, tone(300))])])
    derive_run(folder)
    metadata = pq.read_schema(folder / "derived" / "requests.parquet").metadata

    stamp = json.loads(metadata[b"earwitness.derived"])
    assert AnalysisSettings().digest() == stamp["settings"]
    assert "audible_ttfa" in stamp["metrics"]


# -- the headline, recomputed with nothing of ours but the stored chunks ---------------------------


def recomputed_ttfa_ms(chunk_rows, payload: bytes, dispatched_ns: int, rate_hz: int) -> float:
    """Audible TTFA by plain arithmetic: onset by a scan in Python, playback sample by sample."""
    samples = [value / 32768 for (value,) in struct.iter_unpack("<h", payload)]
    onset = _first_loud_sample(samples, rate_hz)
    clock_ns = None
    played = 0.0
    heard = 0
    for arrival_ns, num_bytes in chunk_rows:
        count = num_bytes // 2
        begins_ns = arrival_ns if clock_ns is None else max(arrival_ns, clock_ns)
        if heard <= onset < heard + count:
            played = begins_ns + (onset - heard) * 1e9 / rate_hz
        clock_ns = begins_ns + count * 1e9 / rate_hz
        heard += count
    return (played - dispatched_ns) / 1e6


def _first_loud_sample(samples: list[float], rate_hz: int) -> int:
    """The first sample after which 30 ms stay above -45 dBFS, in steps of 1 ms."""
    step = rate_hz // 1000

    def level(at: int) -> float:
        window = samples[at : at + 10 * step]
        mean = sum(window) / len(window)
        return math.sqrt(sum((x - mean) ** 2 for x in window) / len(window))

    threshold = 10 ** (-45 / 20)
    for at in range(0, len(samples) - 40 * step, step):
        if all(level(at + ms * step) >= threshold for ms in range(30)):
            inside = range(at, at + 10 * step)
            return next(i for i in inside if abs(samples[i]) >= threshold)
    raise AssertionError("no onset")


@pytest.mark.parametrize("seed", range(6))
def test_audible_ttfa_equals_independent_arithmetic_on_the_stored_chunks(tmp_path, seed):
    """Random silences, chunk sizes and delays; within the 2 ms that the onset rule allows."""
    random_ = random.Random(seed)
    payload = pcm16(clip(silence(random_.uniform(0, 300)), tone(400)))
    at_ms, at, deliveries = 50.0, 0, []
    while at < len(payload):
        size = min(2 * random_.randrange(100, 4000), len(payload) - at)
        deliveries.append((at_ms, size))
        at += size
        at_ms += random_.uniform(0, 120)
    folder = run_folder(tmp_path, [(record(chunks=chunks_of(deliveries)), payload)])
    reported = derive_run(folder).requests["audible_ttfa"][0]
    stored = pq.read_table(folder / "chunks.parquet").to_pydict()
    rows = list(zip(stored["arrival_ns"], stored["num_bytes"], strict=True))

    assert reported == pytest.approx(recomputed_ttfa_ms(rows, payload, 0, 24_000), abs=2.0)
