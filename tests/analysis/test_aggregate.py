"""metrics.json: complete, plain, and never better for losing requests."""

from __future__ import annotations

import json

import pytest

from analysis.aggregate import summarise_run
from analysis.errors import RunDataError
from analysis.estimates import estimate
from analysis.evidence import load_evidence
from analysis.metrics import RequestMetric, registry
from analysis.playback import buffer_ms
from analysis.speech import load_transcripts
from analysis.view import AnalysisSettings
from engines.outcomes import TransportOutcome
from harness.errors import RunFolderError
from harness.records import Phase, RequestRecord, RunStatus
from harness.store import AudioPolicy
from tests.builders.audio import pcm16, tone
from tests.builders.cohorts import GOOD_SELFCHECK, latency_run, spoken_record
from tests.builders.reports import STREAM, heard_run
from tests.builders.runs import chunks_of, ms, point, record, run_folder
from tests.builders.sweeps import Reply, sweep

TIMEOUT = TransportOutcome.TIMEOUT
EIGHT = [100.0, 110.0, 120.0, 130.0, 140.0, 150.0, 160.0, 170.0]


def the_point(folder, **options):
    (found,) = summarise_run(folder, **options)["points"]
    return found


def ttfa(folder, name="audible_ttfa"):
    return the_point(folder)["metrics"][name]


def test_two_labelled_views_of_a_run_with_failures(tmp_path):
    """Successes: 8. All ten: p50 140 ms, p95 and p99 not reached; nothing is 0 or 5 s."""
    found = ttfa(latency_run(tmp_path, [*EIGHT, TIMEOUT, TIMEOUT]))

    assert (10, 2, 0) == (found["n"], found["not_reached"], found["missing"])
    assert 140 == found["p50"]["value"]
    for percent in ("p95", "p99"):
        assert {"value": None, "hi": None, "status": "not_reached"}.items() <= found[
            percent
        ].items()
    assert {"n": 8, "min": 100.0, "mean": 135.0, "p50": 130.0, "p95": 170.0, "p99": 170.0} == found[
        "successes"
    ]


def test_reply_without_audio_is_one_more_failure(tmp_path):
    """HTTP 200 and nothing in it."""
    empty = record(index=10, scheduled_ms=1800)
    found = the_point(latency_run(tmp_path, [*EIGHT, TIMEOUT, TIMEOUT], extra=[empty]))

    assert {"ok": 8, "timeout": 2, "empty_audio": 1} == found["outcomes"]
    assert (11, 3) == (
        found["metrics"]["audible_ttfa"]["n"], found["metrics"]["audible_ttfa"]["not_reached"]
    )  # fmt: skip
    assert 3 / 11 == pytest.approx(found["metrics"]["failure_rate"]["value"]["value"])


@pytest.mark.parametrize(
    ("n", "p99", "status"),
    [
        (20, 20, "no_interval"),
        (99, 99, "no_interval"),
        (100, 99, "no_interval"),
        (101, 100, "no_interval"),
        (368, 365, "ok"),
    ],
)
def test_p99_by_nearest_rank_says_what_it_rests_on(tmp_path, n, p99, status):
    """Latencies 1..n ms; below 100 it is the maximum, below 368 it has no interval."""
    found = ttfa(latency_run(tmp_path, [float(i) for i in range(1, n + 1)], spacing_ms=1))["p99"]

    assert (p99, status) == (found["value"], found["status"])


def test_warm_up_is_excluded_and_counted(tmp_path):
    """Two slow requests of the warm-up are in no figure."""
    warm = [spoken_record(100 + i, 9000.0, at_ms=200.0 * i, phase=Phase.WARMUP) for i in range(2)]
    found = the_point(latency_run(tmp_path, EIGHT, extra=warm))

    assert (8, 2) == (found["n"], found["num_warmup_excluded"])
    assert 170 == found["metrics"]["audible_ttfa"]["successes"]["p99"]


def test_every_declared_metric_is_there_with_its_unit(tmp_path):
    """Also those that could not be measured: with null, never absent and never 0."""
    metrics = the_point(latency_run(tmp_path, EIGHT))["metrics"]

    assert list(registry()) == list(metrics)
    for name, metric in registry().items():
        assert (metric.unit, metric.better.value) == (
            metrics[name]["unit"],
            metrics[name]["better"],
        )
        keys = (
            {"p50", "p95", "p99", "successes"} if isinstance(metric, RequestMetric) else {"value"}
        )
        assert keys <= set(metrics[name])


@pytest.mark.parametrize("name", ["clipped_share", "dc_offset", "connect_time", "wer"])
def test_unmeasured_is_null_and_counted_as_missing(tmp_path, name):
    """A simulated reply has no waveform, a warm connection no connect time, nobody listened."""
    found = ttfa(latency_run(tmp_path, EIGHT), name)
    value = found["value"] if "value" in found else found["p50"]

    assert (None, "no_data") == (value["value"], value["status"])
    assert (0, 8) == (found["n"], found["missing"])


def test_json_has_no_nan_and_no_infinity(tmp_path):
    """A strict parser reads the file, and it equals what was returned."""
    folder = latency_run(tmp_path, [*EIGHT, TIMEOUT])
    returned = summarise_run(folder)

    def refuse(word):
        raise AssertionError(f"{word} in metrics.json")

    text = (folder / "derived" / "metrics.json").read_text()
    assert returned == json.loads(text, parse_constant=refuse)


def test_failures_never_make_a_percentile_better(tmp_path):
    """Turning the slowest replies into timeouts cannot lower p50."""
    slow = ttfa(latency_run(tmp_path / "a", [*EIGHT, 900.0, 950.0]))["p50"]["value"]
    lost = ttfa(latency_run(tmp_path / "b", [*EIGHT, TIMEOUT, TIMEOUT]))["p50"]["value"]

    assert slow == lost


def test_arrivals_that_were_never_recorded_are_counted_and_make_the_point_invalid(tmp_path):
    """An interrupted run: 8 of 12 planned."""
    folder = latency_run(tmp_path, EIGHT)
    import pyarrow as pa
    import pyarrow.parquet as pq

    plan = pq.read_table(folder / "schedule.parquet")
    pq.write_table(pa.concat_tables([plan, plan.slice(0, 4)]), folder / "schedule.parquet")
    found = the_point(folder)

    assert (8, 4) == (found["n"], found["num_unrecorded"])
    assert "invalid" == found["validity"]["verdict"]
    assert ["incomplete"] == [reason["code"] for reason in found["validity"]["reasons"]]


def test_achieved_rate_stands_beside_the_asked_one(tmp_path):
    """Eight requests in 1.16 s."""
    found = the_point(latency_run(tmp_path, EIGHT))

    assert (2.0, 8 / 1.16) == (found["rate_rps"], pytest.approx(found["achieved_rps"]))


@pytest.mark.parametrize("kept", ["all", "sample:0.5", "none"])
def test_failures_weigh_the_same_however_much_sound_was_kept(tmp_path, kept):
    """Twelve replies and four refusals; what was not drawn is missing, refused or not."""
    sound = pcm16(tone(100))
    replies: list[tuple[RequestRecord, bytes | None]] = [
        (record(index=i, scheduled_ms=1500, chunks=chunks_of([(1600, len(sound))])), sound)
        for i in range(12)
    ]
    refused = {"transport_outcome": TransportOutcome.REFUSED}
    replies += [(record(index=12 + i, scheduled_ms=1500, **refused), None) for i in range(4)]
    policy = AudioPolicy.parse(kept)
    drawn = [policy.keeps(i, "p1") for i in range(16)]
    found = the_point(run_folder(tmp_path, replies, scenario={"recording": {"audio": kept}}))

    heard = found["metrics"]["audible_ttfa"]
    told = (heard["n"], heard["not_reached"], heard["missing"])
    assert (sum(drawn), sum(drawn[12:]), 16 - sum(drawn)) == told
    assert 0.25 == found["metrics"]["failure_rate"]["value"]["value"]


def test_warm_up_request_that_reaches_into_the_phase_is_in_flight(tmp_path):
    """It ends in the middle of a phase of 1.16 s; it is in no other figure."""
    early = record(index=99, phase=Phase.WARMUP, scheduled_ms=500, finished_ns=ms(1580))
    alone = the_point(latency_run(tmp_path / "a", EIGHT))
    found = the_point(latency_run(tmp_path / "b", EIGHT, extra=[early]))

    mean = found["metrics"]["in_flight_mean"]["value"]["value"]
    assert 0.5 == pytest.approx(mean - alone["metrics"]["in_flight_mean"]["value"]["value"])
    assert (8, 8) == (found["n"], found["metrics"]["audible_ttfa"]["n"])


def test_start_rule_is_named_and_changes_the_delay(tmp_path):
    """With 700 ms of buffer the player waits for the second chunk, 100 ms later."""
    folder = latency_run(tmp_path, EIGHT)
    settings = AnalysisSettings(start=buffer_ms(700))
    summary = summarise_run(folder, settings=settings, is_stored=False)

    assert "buffer_ms 700" == summary["start_rule"]
    assert 230 == summary["points"][0]["metrics"]["audible_ttfa"]["p50"]["value"]
    assert not (folder / "derived").exists()


def test_points_keep_their_own_requests(tmp_path):
    """Two points of one run, told apart by id."""
    records = [
        spoken_record(i, 100.0 * (k + 1), at_ms=1500 + i, point_id=f"p{k}")
        for k in range(2)
        for i in range(3)
    ]
    points = [point(f"p{k}", num_planned=3, selfcheck=dict(GOOD_SELFCHECK)) for k in range(2)]
    summary = summarise_run(run_folder(tmp_path, records, points=points))

    assert [100, 200] == [p["metrics"]["audible_ttfa"]["p50"]["value"] for p in summary["points"]]


def test_point_without_requests_is_invalid_and_has_no_figures(tmp_path):
    """Nothing measured is nothing good."""
    folder = run_folder(tmp_path, [], points=[point(num_planned=0)], status=RunStatus.INTERRUPTED)
    found = the_point(folder)

    assert ("invalid", "unknown", 0) == (found["validity"]["verdict"], found["load"], found["n"])
    assert "no_data" == found["metrics"]["audible_ttfa"]["p50"]["status"]


def test_folder_that_is_no_run_is_refused(tmp_path):
    """By the store, in one line."""
    with pytest.raises(RunFolderError, match=r"run\.json"):
        summarise_run(tmp_path)


def test_derived_folder_that_cannot_be_made_is_one_line(tmp_path):
    """A file stands where the folder should be."""
    folder = latency_run(tmp_path, EIGHT)
    (folder / "derived").write_text("")
    with pytest.raises(RunDataError, match="cannot be written"):
        summarise_run(folder)


def test_client_error_invalidates_the_point(tmp_path):
    """Our own fault is not the engine's."""
    found = the_point(latency_run(tmp_path, [*EIGHT, TransportOutcome.CLIENT_ERROR]))

    assert "invalid" == found["validity"]["verdict"]


def test_where_the_run_had_settled_is_told(tmp_path):
    """40 requests of one level after 20 slow ones in the plan's order; too few are null."""
    records = [
        spoken_record(i, 900.0 if i < 20 else 100.0 + i % 3, at_ms=1500 + 20 * i) for i in range(60)
    ]
    settled = the_point(run_folder(tmp_path, records, name="a"))["steady_state"]["audible_ttfa"]
    short = the_point(latency_run(tmp_path / "b", EIGHT))["steady_state"]

    assert (20, 60, True) == (settled["start"], settled["num_values"], settled["is_reached"])
    assert {"audible_ttfa": None, "in_flight": None} == short


def test_figures_of_a_rate_are_over_all_of_its_seeds(tmp_path):
    """p50 of 10 to 50 ms on one seed and 110 to 160 on the other: the sixth of eleven."""
    of_seed = {1: [10, 20, 30, 40, 50], 2: [110, 120, 130, 140, 150, 160]}
    folder = sweep(
        tmp_path,
        {"tts": lambda _, seed: [Reply(float(ms)) for ms in of_seed[seed]]},
        seeds=(1, 2),
    )
    [found] = summarise_run(folder)["rates"]
    p50 = found["metrics"]["audible_ttfa"]["p50"]["value"]

    assert ([1, 2], 11, 110.0) == (found["seeds"], found["n"], pytest.approx(p50))


def test_share_of_a_rate_has_the_interval_by_which_gates_judge_it(tmp_path):
    """A burst in one of three seeds: the page and the verdict must not tell two stories."""

    def bursts(rate, seed):
        lost = Reply(0, outcome=TransportOutcome.TIMEOUT)
        return [lost if seed == 1 and 20 <= i < 30 else Reply(50.0) for i in range(40)]

    folder = sweep(tmp_path, {"tts": bursts}, seeds=(1, 2, 3))
    (rate,) = summarise_run(folder)["rates"]
    told = rate["metrics"]["failure_rate"]["value"]
    judged = estimate(load_evidence(folder).points, "failure_rate", None)

    assert 10 / 120 == told["value"] == judged.value
    assert (judged.lo, judged.hi) == (told["lo"], told["hi"])
    assert judged.share.inflation > 1


def test_word_error_rate_of_a_rate_is_over_the_words_of_all_its_seeds(tmp_path):
    """Every clip is heard as the first prompt: the sum of edits by the sum of words, by rate."""
    folder = heard_run(
        tmp_path, engines={"one": STREAM}, rates=(1.0, 2.0), seeds=(1, 2), num_requests=8
    )
    clips = load_transcripts(folder).clips
    edits = clips[["substitutions", "deletions", "insertions"]].sum(axis=1)
    for rate in summarise_run(folder)["rates"]:
        own = clips["point_id"].isin(rate["point_ids"])
        wer = rate["metrics"]["wer"]

        assert 2 == len(rate["seeds"]) == clips[own]["point_id"].nunique()
        assert own.sum() == wer["n"] > 0
        assert edits[own].sum() / clips[own]["num_words"].sum() == wer["value"]["value"] > 0


def test_point_that_was_cut_short_does_not_count_beside_its_second_try(tmp_path):
    """The same plan twice would count its first requests twice; alone it is all there is."""
    cut = point("tts-r1-s1", engine="tts", is_complete=False)
    again = point("tts-r1-s1-try2", engine="tts")
    names = []
    cut_again = point("tts-r1-s1-try2", engine="tts", is_complete=False)
    for number, points in enumerate([[cut, again], [cut], [cut, cut_again]]):
        folder = run_folder(tmp_path, [], points=points, name=f"run{number}")
        [found] = summarise_run(folder)["rates"]
        names.append(found["point_ids"])

    assert [["tts-r1-s1-try2"], ["tts-r1-s1"], ["tts-r1-s1-try2"]] == names


def test_judgements_see_the_second_try_alone(tmp_path):
    """A gate and the report count the same requests."""
    cut = point("tts-r1-s1", engine="tts", is_complete=False)
    again = point("tts-r1-s1-try2", engine="tts")
    folder = run_folder(tmp_path, [], points=[cut, again])
    [found] = load_evidence(folder).points

    assert "tts-r1-s1-try2" == found.summary["point_id"]
