"""Data of the request explorer, and the clips that go into the page."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
import soundfile

from analysis.report.clips import choose_clips, collect_clips
from analysis.report.explorer import explorer_data
from analysis.report.settings import ReportSettings
from analysis.speech import load_transcripts
from harness.store import open_run


@pytest.fixture(scope="module")
def data(loaded, run_dir):
    """What the page's script reads."""
    return explorer_data(loaded.tables, load_transcripts(run_dir))


def row_of(data, request_id):
    """The place of one request."""
    return data["values"]["id"].index(request_id)


def test_every_measured_request_is_there_once(data, loaded):
    """Warm-up ones are not."""
    measured = loaded.run.requests.query("phase == 'measure'")["request_id"].tolist()

    assert measured == data["values"]["id"]


def test_data_is_plain_json(data):
    """No NaN, no numpy type."""
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_chunk_times_rebuild_the_stored_arrivals(data, loaded):
    """Gaps in tenths of a millisecond, from dispatch."""
    request_id = "stream-r1-s1-5"
    row = row_of(data, request_id)
    stored = loaded.tables.chunks.query("request_id == @request_id").sort_values("seq")
    dispatched = loaded.run.requests.set_index("request_id").loc[request_id, "dispatched_ns"]
    rebuilt = np.cumsum([gap for gap, _, _ in data["chunks"][row]]) / 10

    assert pytest.approx(((stored["arrival_ns"] - dispatched) / 1e6).tolist(), abs=0.11) == list(
        rebuilt
    )


def test_first_chunk_has_no_due_time(data):
    """It starts playback."""
    assert all(chunks[0][2] is None for chunks in data["chunks"] if chunks)


def test_failed_request_has_its_error_and_no_latency(data):
    """In the server's own words, with the status."""
    row = data["labels"]["outcome"].index("http error")
    failed = data["values"]["outcome"].index(row)

    assert data["values"]["audible_ttfa"][failed] is None
    assert data["errors"][data["values"]["id"][failed]].startswith("HTTP 500: server said")


def test_transcript_difference_is_kept_for_heard_clips(data, run_dir):
    """Words of both sides."""
    heard = load_transcripts(run_dir).clips.query("status == 'scored'")["request_id"]

    assert set(heard) == set(data["diffs"])
    kinds = {kind for diff in data["diffs"].values() for kind, _, _ in diff["edits"]}
    assert kinds <= {"equal", "substitute", "delete", "insert"}


def test_worst_clips_of_every_point_come_first(loaded):
    """The budget is spent on the worst of each point before the second worst of any."""
    wanted = choose_clips(loaded.tables, ReportSettings())
    num_points = len(loaded.tables.points)
    points = loaded.run.requests.set_index("request_id")["point_id"]

    assert num_points == len({points[request_id] for request_id in wanted[:num_points]})


def test_numbers_of_worst_and_median_clips_are_settings(loaded):
    """2 worst and 1 median of 6 points."""
    settings = ReportSettings(num_worst_clips=2, num_median_clips=1)

    assert 18 == len(choose_clips(loaded.tables, settings))


def test_latest_and_most_stalled_replies_are_among_the_worst(loaded):
    """A reply can start in time and still be the worst to listen to."""
    wanted = set(choose_clips(loaded.tables, ReportSettings(num_worst_clips=2, num_median_clips=0)))
    cohort = loaded.tables.cohort("stream-r0.5-s1")

    assert cohort.loc[cohort["audible_ttfa"].astype(float).idxmax(), "request_id"] in wanted
    assert cohort["stall_total"].max() == pytest.approx(
        float(cohort[cohort["request_id"].isin(wanted)]["stall_total"].max())
    )


def test_clip_in_the_page_is_the_recorded_sound(loaded):
    """Lossless: the samples that came, nothing else."""
    run = open_run(loaded.folder)
    found = collect_clips(run, ["stream-r1-s1-5"], ReportSettings())
    clip = found.clips["stream-r1-s1-5"]
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(clip.flac)), dtype="int16")

    assert 24_000 == rate == clip.sample_rate_hz
    assert run.payload("stream-r1-s1-5") == samples.astype("<i2").tobytes()


def test_budget_limits_the_clips_and_counts_what_it_left_out(loaded):
    """Never a page that grows without bound."""
    wanted = choose_clips(loaded.tables, ReportSettings())
    found = collect_clips(
        open_run(loaded.folder), wanted, ReportSettings(audio_budget_bytes=60_000)
    )

    assert 60_000 >= sum(len(clip.flac) for clip in found.clips.values())
    assert 0 < len(found.clips) == found.num_wanted - found.num_left_out
