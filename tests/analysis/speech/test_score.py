"""Which clips are heard, what is written down about them, and what the figures add up to."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.errors import RunDataError
from analysis.speech import load_transcripts, score_run, summarise_wer, wer_of_points
from analysis.speech.score import TRANSCRIPTS_FILE
from harness.records import Phase, TransportOutcome
from tests.builders.runs import PCM_24K, chunks_of, point, record, run_folder
from tests.builders.speech import ScriptedTranscriber, tone

LOUD = (tone(1.0, 24_000) * 32_767).astype("<i2").tobytes()
SILENT = np.zeros(24_000, "<i2").tobytes()


def clip(index, *, text="see you later today", payload=LOUD, **fields):
    """One finished request with its payload in two chunks."""
    half = len(payload) // 2
    chunks = chunks_of([(100, half), (200, len(payload) - half)])
    return record(index=index, text=text, chunks=chunks, **fields), payload


def score(folder, *answers, **settings):
    """Score with a scripted recogniser and a language that needs no extra."""
    answers = answers or ("see you later today",)
    transcriber = ScriptedTranscriber(*answers, language="xx")
    return score_run(folder, transcriber=transcriber, **settings)


def test_corpus_wer_is_total_edits_over_total_words(tmp_path):
    """4 edits of 4 words and 0 of 2: 4/6, where a mean of clips would say 1/2."""
    folder = run_folder(tmp_path, [clip(0), clip(1, text="thank you")])
    figures = summarise_wer(score(folder, "", "thank you"))["fake"]

    assert pytest.approx((4 / 6, 0.5)) == (figures["value"], figures["mean_of_clips"])


def test_silent_clip_is_all_deletions_not_a_skip(tmp_path):
    """The recogniser is not even asked."""
    folder = run_folder(tmp_path, [clip(0, payload=SILENT)])
    scored = score(folder, "you")

    assert ("too_quiet", 1.0, 4) == tuple(scored.clips.loc[0, ["guard", "wer", "tail_deletions"]])


def test_empty_reply_is_all_deletions(tmp_path):
    """A clean end without audio said none of the words."""
    folder = run_folder(tmp_path, [clip(0, payload=b"")])

    assert [1.0] == score(folder).clips["wer"].tolist()


def test_bytes_that_are_no_audio_are_all_deletions(tmp_path):
    """What cannot be decoded was not said."""
    from dataclasses import replace

    from engines.base import SampleFormat

    wav = replace(PCM_24K, sample_format=SampleFormat.WAV)
    folder = run_folder(tmp_path, [clip(0, payload=b"<html>" * 99, format=wav)])

    assert [("undecodable", 1.0)] == list(
        score(folder).clips[["guard", "wer"]].itertuples(index=False, name=None)
    )


def test_text_with_nothing_to_say_is_not_scored(tmp_path):
    """Punctuation alone has no words to get wrong."""
    folder = run_folder(tmp_path, [clip(0, text="?!"), clip(1)])
    figures = summarise_wer(score(folder))["fake"]

    assert (1, 2, {"no_words": 1}) == (figures["n"], figures["selected"], figures["not_scored"])


def test_text_that_only_normalisation_gives_words_is_scored(tmp_path):
    """ "&" is said as "and"; as written it has no word, so the raw figure goes without it."""
    pytest.importorskip("whisper", reason="the `whisper` extra is not installed")
    folder = run_folder(tmp_path, [clip(0, text="&")])
    scored = score_run(folder, transcriber=ScriptedTranscriber("and"))
    figures = summarise_wer(scored)["fake"]

    assert (0.0, None) == (figures["value"], figures["raw"]["value"])


def test_clip_of_which_only_the_head_was_kept_is_not_scored(tmp_path):
    """Half a recording would read as a cut-off voice."""
    whole, payload = clip(0)
    whole.audio_bytes = len(payload) // 4
    folder = run_folder(tmp_path, [(whole, payload[: len(payload) // 4])])

    assert ["no_audio"] == score(folder).clips["status"].tolist()


def test_failed_and_warm_up_requests_are_not_drawn(tmp_path):
    """They have no clip to judge; failures are counted as failures."""
    folder = run_folder(
        tmp_path,
        [
            clip(0, phase=Phase.WARMUP),
            clip(1, transport_outcome=TransportOutcome.TRUNCATED),
            clip(2),
        ],
    )

    assert ["fake-r2-s1-2"] == score(folder).clips["request_id"].tolist()


def test_draw_is_the_same_for_the_same_seed(tmp_path):
    """And another for another."""
    folder = run_folder(tmp_path, [clip(i) for i in range(40)])
    draws = [
        score(folder, max_clips_per_engine=5, seed=seed).clips["request_id"].tolist()
        for seed in (1, 1, 2)
    ]

    assert draws[0] == draws[1] != draws[2]


def test_two_engines_under_the_same_plan_are_heard_on_the_same_arrivals(tmp_path):
    """The draw looks at the plan, not at the engine's name."""
    points = [point("a-r2", engine="a"), point("b-r2", engine="b")]
    clips = [
        clip(i, prompt_id=f"p{i}", point_id=each.point_id) for each in points for i in range(30)
    ]
    drawn = score(run_folder(tmp_path, clips, points=points), max_clips_per_engine=6).clips

    by_engine = drawn.groupby("engine")["prompt_id"].agg(list)
    assert (6, True) == (len(by_engine["a"]), by_engine["a"] == by_engine["b"])


def test_points_above_the_rate_limit_are_left_out(tmp_path):
    """Speech is judged where the engine keeps up, if so asked."""
    points = [point("slow", rate_rps=1.0), point("fast", rate_rps=9.0)]
    folder = run_folder(
        tmp_path, [clip(0, point_id="slow"), clip(0, point_id="fast")], points=points
    )

    assert ["slow"] == score(folder, max_rate_rps=2.0).clips["point_id"].tolist()


def test_repeats_that_the_text_asks_for_are_no_loop(tmp_path):
    """ "no no no no" said as written is not a fault of the voice."""
    folder = run_folder(tmp_path, [clip(0, text="no no no no"), clip(1)])
    scored = score(folder, "no no no no", "see see see see see")

    assert [0, 5] == scored.clips["loop_repeats"].tolist()


def test_transcripts_are_read_back_as_written(tmp_path):
    """Rows and the settings behind them."""
    folder = run_folder(tmp_path, [clip(0), clip(1)])
    written, read = score(folder, seed=3), load_transcripts(folder)

    assert written.settings == read.settings
    assert written.clips["wer"].tolist() == read.clips["wer"].tolist()


def test_unscored_run_has_no_transcripts(tmp_path):
    """Absent is None, not an empty table."""
    assert load_transcripts(run_folder(tmp_path, [clip(0)])) is None


def test_damaged_transcripts_are_named(tmp_path):
    """The message says which file and what to do."""
    folder = run_folder(tmp_path, [clip(0)])
    (folder / "derived").mkdir(exist_ok=True)
    (folder / TRANSCRIPTS_FILE).write_bytes(b"not parquet")

    with pytest.raises(RunDataError, match=r"transcripts.parquet.*score again"):
        load_transcripts(folder)


def test_nothing_scored_gives_null_with_a_reason(tmp_path):
    """No figure is not a good figure."""
    folder = run_folder(tmp_path, [clip(0, text="...")])
    figures = wer_of_points(score(folder), ["fake-r2-s1"])

    assert (None, "not_measured", "no clip could be scored (1 no_words)") == (
        figures["value"],
        figures["status"],
        figures["reason"],
    )


def test_figures_name_recogniser_rules_and_coverage(tmp_path):
    """Whoever reads the number can see what it rests on."""
    folder = run_folder(tmp_path, [clip(i) for i in range(9)])
    figures = summarise_wer(score(folder, max_clips_per_engine=7))["fake"]

    assert (7, 7, 9) == (figures["n"], figures["selected"], figures["candidates"])
    assert ("scripted 1 none", "basic (rules 1)") == (figures["recogniser"], figures["normaliser"])


def test_progress_is_told_after_each_clip(tmp_path):
    """A person waits for a recogniser; they see how far it is."""
    seen = []
    folder = run_folder(tmp_path, [clip(0), clip(1)])
    score(folder, on_progress=lambda done, total: seen.append((done, total)))

    assert [(1, 2), (2, 2)] == seen
