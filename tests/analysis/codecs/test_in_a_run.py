"""Compressed replies in a whole run: chunks on their basis, figures, and what the report says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.aggregate import summarise_run
from analysis.derive import derive_run
from analysis.report.facts import notes
from engines.base import SampleFormat
from harness.store import open_run
from tests.builders.audio import clip, pcm16, silence, tone
from tests.builders.codecs import codec_format, encode
from tests.builders.runs import chunks_of, ms, point, record, run_folder

SOUND = clip(silence(100), tone(400))


def reply(engine: str, payload: bytes, **fields):
    """Sent at 2 s; half of the payload after 50 ms, the rest 100 ms later."""
    half = len(payload) // 2
    built = record(
        point_id=f"{engine}-r2-s1",
        scheduled_ms=2000,
        chunks=chunks_of([(2050, half), (2150, len(payload) - half)]),
        finished_ns=ms(2160),
        **fields,
    )
    return built, payload


def mp3_run(tmp_path: Path) -> Path:
    """A bare MP3 of one engine beside the PCM of another."""
    fmt = codec_format(SampleFormat.MP3)
    return run_folder(
        tmp_path,
        [
            reply("mp3", encode("bare mp3", SOUND), format=fmt, expected_format=fmt),
            reply("pcm", pcm16(SOUND)),
        ],
        points=[point(f"{name}-r2-s1", engine=name) for name in ("mp3", "pcm")],
    )


def told(folder: Path) -> list[str]:
    return list(notes(summarise_run(folder), open_run(folder).record))


def test_chunks_of_an_mp3_are_counted_by_frames(tmp_path):
    """Whole frames of 576 samples, that add up to all of them; audible after the priming."""
    derived = derive_run(mp3_run(tmp_path))
    chunks = derived.chunks[derived.chunks["request_id"] == "mp3-r2-s1-0"]
    requests = derived.requests.set_index("request_id")

    assert {"frame"} == set(chunks["duration_basis"])
    assert {0} == set(chunks["num_samples"] % 576)
    assert chunks["num_samples"].sum() == requests.loc["mp3-r2-s1-0", "num_samples"]
    assert 100 + 1105 / 24 == pytest.approx(requests.loc["mp3-r2-s1-0", "leading_silence"], abs=5)


def test_report_says_that_formats_are_timed_differently_and_what_is_untrimmed(tmp_path):
    """Both engines by name."""
    found = " ".join(told(mp3_run(tmp_path)))

    assert "mp3 by frame, pcm by exact" in found
    assert "mp3: 1 of its replies do not state their encoder's delay" in found


def test_run_without_the_decoder_is_null_with_the_remedy_and_measured_once_it_is_there(
    tmp_path, monkeypatch
):
    """No crash and no failure; the stored tables are made anew when the decoder comes."""
    folder = mp3_run(tmp_path)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "av", None)
        without.setattr("analysis.derive.decoder_version", lambda: None)
        row = derive_run(folder).requests.set_index("request_id").loc["mp3-r2-s1-0"]
        said = " ".join(told(folder))

    assert "ok" == row["outcome"]
    assert np.isnan(row["audible_ttfa"])
    assert "mp3: 1 of its replies are compressed and were not decoded" in said
    assert "pip install -e '.[codecs]'" in said
    later = derive_run(folder).requests.set_index("request_id").loc["mp3-r2-s1-0"]
    assert 190 < later["audible_ttfa"] < 205
