"""What a run folder is given, it gives back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.base import AudioFormat, PayloadEncoding, RateSource, SampleFormat
from harness.errors import RunFolderError
from harness.records import (
    Phase,
    RequestRecord,
    RunStatus,
    TelemetrySample,
    TextEvent,
    TransportOutcome,
)
from harness.store import RunWriter, open_run, recover, write_run
from tests.builders.runs import (
    PCM_24K,
    chunks_of,
    kill,
    ms,
    point,
    record,
    run_folder,
    run_record,
    scenario,
    schedule_of,
)


def test_every_field_of_a_record_comes_back(tmp_path: Path) -> None:
    """A record with each field set is equal to the one that was stored."""
    stored = record(
        index=3,
        scheduled_ms=5,
        chunks=chunks_of([(20, 4), (30.5, 6)]),
        phase=Phase.WARMUP,
        dns_ns=1,
        connected_ns=2,
        tls_ns=3,
        cancel_ns=4,
        tls_resumed=True,
        connection_reused=False,
        error_kind="total",
        error_text="stopped after 2 s",
        transport_outcome=TransportOutcome.TIMEOUT,
        text_events=[TextEvent(0, 10, 11, None), TextEvent(1, 20, None, None)],
        known_onset_sample=17,
        server_timing='{"prefill_ms": 3}',
    )
    folder = run_folder(tmp_path, [(stored, b"0123456789")])

    [(found, payload)] = open_run(folder).iter_records()

    expected = replace(stored, audio_file="audio/0-0.bin", audio_offset=0, audio_bytes=10)
    assert (expected, b"0123456789") == (found, payload)


def test_a_request_that_got_no_answer_has_nulls_and_no_payload(tmp_path: Path) -> None:
    """Stamps that were not taken are null, never zero."""
    unsent = RequestRecord(
        request_id="a",
        point_id="fake-r2-s1",
        shard=0,
        index=0,
        phase=Phase.MEASURE,
        prompt_id="p1",
        text="Hi.",
        scheduled_ns=7,
        transport_outcome=TransportOutcome.NOT_SENT,
    )
    run = open_run(run_folder(tmp_path, [unsent]))

    row = run.requests.iloc[0]
    nulls = ["dispatched_ns", "http_status", "connection_reused", "sample_format", "audio_offset"]
    assert [True] * 5 == [bool(value) for value in row[nulls].isna()]
    assert run.payload("a") is None


def test_requests_lie_in_the_order_of_the_plan(tmp_path: Path) -> None:
    """The log holds the order of completion, the table that of the schedule."""
    points = [point("a"), point("b")]
    late_first = [record(point_id=p, index=i) for p, i in (("b", 1), ("a", 2), ("b", 0), ("a", 1))]
    run = open_run(run_folder(tmp_path, late_first, points=points))

    assert ["a-1", "a-2", "b-0", "b-1"] == run.requests["request_id"].tolist()


def test_nanoseconds_beyond_the_exact_range_of_a_float_stay_exact(tmp_path: Path) -> None:
    """A nullable stamp of 2^53 + 1 ns does not pass through a float."""
    exact = 2**53 + 1
    run = open_run(run_folder(tmp_path, [record(finished_ns=exact)]))

    assert exact == run.requests["finished_ns"].iloc[0]


def test_telemetry_and_schedule_come_back(tmp_path: Path) -> None:
    """Samples and planned arrivals are tables of their own."""
    sample = TelemetrySample("fake-r2-s1", 12, "selfcheck", "loop_lag_ms", 0.5)
    records = [record(scheduled_ms=1_500)]
    head = run_record(points=[point(start_ns=ms(1_000))])
    write_run(
        tmp_path / "run",
        head,
        schedule_of(records, head.points),
        [(records[0], None)],
        telemetry=[sample],
    )
    run = open_run(tmp_path / "run")

    assert [
        ["fake-r2-s1", 12, "selfcheck", "loop_lag_ms", 0.5]
    ] == run.telemetry.to_numpy().tolist()
    assert [ms(500)] == run.schedule["scheduled_ns"].tolist()


def test_a_folder_is_never_used_twice(tmp_path: Path) -> None:
    """An existing folder is refused by name and left as it is."""
    folder = run_folder(tmp_path, [record()])
    before = (folder / "run.json").read_bytes()

    with pytest.raises(RunFolderError, match="exists already") as refused:
        run_folder(tmp_path, [record()])

    assert 6 == refused.value.exit_code
    assert before == (folder / "run.json").read_bytes()


def test_the_log_is_gone_once_the_tables_are_closed(tmp_path: Path) -> None:
    """A closed folder holds the documented names and nothing else."""
    folder = run_folder(tmp_path, [record()])

    assert [
        "audio",
        "chunks.parquet",
        "requests.parquet",
        "run.json",
        "schedule.parquet",
        "telemetry.parquet",
        "text_events.parquet",
    ] == sorted(path.name for path in folder.iterdir())


def test_plan_and_head_are_on_disk_before_the_first_request(tmp_path: Path) -> None:
    """Right after `create` the schedule can be read and the run says that it is running."""
    records = [record()]
    head = run_record()
    writer = RunWriter.create(tmp_path / "run", head, schedule_of(records, head.points))

    run = open_run(tmp_path / "run")
    assert (RunStatus.RUNNING, 1, 0) == (run.record.status, len(run.schedule), len(run.requests))
    writer.close(RunStatus.COMPLETE)


def test_an_open_run_can_be_read_while_it_lasts(tmp_path: Path) -> None:
    """What has been appended is there, table by table, before the run is closed."""
    head = run_record()
    first = record(chunks=chunks_of([(1, 2)]))
    writer = RunWriter.create(tmp_path / "run", head, schedule_of([first], head.points))
    writer.append(first, [b"ab"])
    kill(writer)

    run = open_run(tmp_path / "run")
    assert (1, 1, b"ab") == (len(run.requests), len(run.chunks), run.payload(first.request_id))


def test_secrets_in_texts_from_a_server_are_hidden(tmp_path: Path) -> None:
    """The redaction given to the writer sees error texts and server timings."""
    head = run_record()
    leaky = record(error_text="bad key s3cret", server_timing='{"key": "s3cret"}')
    writer = RunWriter.create(
        tmp_path / "run",
        head,
        schedule_of([leaky], head.points),
        redact=lambda text: text.replace("s3cret", "***"),
    )
    writer.append(leaky)
    writer.close(RunStatus.COMPLETE)

    stored = b"".join(p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file())
    [(found, _)] = open_run(tmp_path / "run").iter_records()
    assert ("bad key ***", '{"key": "***"}') == (found.error_text, found.server_timing)
    assert b"s3cret" not in stored


def test_a_payload_of_very_many_pieces_comes_back_whole(tmp_path: Path) -> None:
    """More than the kernel takes in one call; the next payload lies behind it."""
    pieces = [bytes([n % 251]) for n in range(3_000)]
    many, few = record(index=0), record(index=1)
    folder = tmp_path / "many"
    head = run_record()
    write_run(folder, head, schedule_of([many, few], head.points), [(many, pieces), (few, b"end")])

    assert [b"".join(pieces), b"end"] == [payload for _, payload in open_run(folder).iter_records()]


def test_a_fault_of_ours_while_storing_is_raised_and_not_lost(tmp_path: Path) -> None:
    """The thread that stores has nobody to tell but whoever appends and closes."""

    def redact(text: str) -> str:
        if text == "said":
            raise LookupError(f"no rule for {text}")
        return text

    records = [record(index=i, error_text="said" if i == 1 else None) for i in range(4)]
    head = run_record()
    plan = schedule_of(records, head.points)
    writer = RunWriter.create(tmp_path / "run", head, plan, redact=redact)
    for each in records:
        writer.append(each, [b"x"])

    with pytest.raises(LookupError, match="no rule for said"):
        writer.close(RunStatus.COMPLETE)
    assert isinstance(writer.failure, LookupError)
    assert 1 == recover(tmp_path / "run").num_requests


def test_without_text_no_table_holds_a_word_of_it(tmp_path: Path) -> None:
    """`recording.text: false` drops the prompt, and its echo in an error text."""
    private = scenario({"recording.text": False}).resolved()
    said = record(text="my own secret plan", error_text="cannot say: my own secret plan")
    run = open_run(run_folder(tmp_path, [said], scenario=private))

    [(found, _)] = run.iter_records()
    assert ("", "cannot say: ***") == (found.text, found.error_text)


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("all", b"0123456789"),
        ("none", None),
        ("head:0.0001", b"0123"),  # 2 PCM frames of 24 kHz, 2 bytes each
        ("sample:1", b"0123456789"),
        ("sample:0", None),
    ],
)
def test_as_much_audio_is_kept_as_the_scenario_says(
    policy: str, kept: bytes | None, tmp_path: Path
) -> None:
    """Payload bytes are cut by the policy; chunk sizes still tell how much had arrived."""
    wanted = scenario({"recording.audio": policy}).resolved()
    heard = record(chunks=chunks_of([(1, 10)]))
    run = open_run(run_folder(tmp_path, [(heard, b"0123456789")], scenario=wanted))

    assert kept == run.payload(heard.request_id)
    assert [10] == run.chunks["num_bytes"].tolist()


def test_a_head_of_base64_keeps_as_many_seconds(tmp_path: Path) -> None:
    """Text encodings are longer than what they hold, by 4 / 3 for base64."""
    wanted = scenario({"recording.audio": "head:0.001"}).resolved()
    wrapped = AudioFormat(
        SampleFormat.S16LE, 24_000, 1, RateSource.CONTRACT, PayloadEncoding.BASE64
    )
    heard = record(format=wrapped)
    run = open_run(run_folder(tmp_path, [(heard, b"A" * 400)], scenario=wanted))

    assert 24 * 2 * 4 // 3 == len(run.payload(heard.request_id) or b"")


def test_the_same_requests_are_sampled_for_every_engine(tmp_path: Path) -> None:
    """A share falls on the same indices at both points, and on some but not all of them."""
    wanted = scenario({"recording.audio": "sample:0.5"}).resolved()
    pairs = [(record(point_id=p, index=i), b"x") for p in ("a", "b") for i in range(64)]
    run = open_run(run_folder(tmp_path, pairs, scenario=wanted))

    kept = {p: {i for i in range(64) if run.payload(f"{p}-{i}")} for p in ("a", "b")}
    assert kept["a"] == kept["b"]
    assert 0 < len(kept["a"]) < 64


texts = st.text(max_size=40)
stamps = st.none() | st.integers(0, 2**62)


@st.composite
def _records(draw: st.DrawFn) -> tuple[RequestRecord, list[bytes]]:
    payload = draw(st.lists(st.binary(max_size=50), max_size=5))
    sizes = [(float(n), len(buffer)) for n, buffer in enumerate(payload)]
    built = record(
        index=draw(st.integers(0, 10_000)),
        text=draw(texts.filter(bool)),
        error_text=draw(st.none() | texts),
        finished_ns=draw(stamps),
        headers_ns=draw(stamps),
        transport_outcome=draw(st.sampled_from(TransportOutcome)),
        format=draw(st.sampled_from([None, PCM_24K])),
        expected_format=None,
        chunks=chunks_of(sizes),
    )
    return built, payload


@given(st.lists(_records(), max_size=8, unique_by=lambda pair: pair[0].index))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_records_and_payloads_come_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[RequestRecord, list[bytes]]]
) -> None:
    """Whatever texts, stamps, formats and pieces: stored and read back they are the same."""
    folder = run_folder(tmp_path_factory.mktemp("any"), pairs, points=[point()])  # type: ignore[arg-type]

    found = {r.request_id: (r, payload) for r, payload in open_run(folder).iter_records()}
    assert {r.request_id for r, _ in pairs} == set(found)
    for stored, payload in pairs:
        read, read_payload = found[stored.request_id]
        places = {"audio_file": None, "audio_offset": None, "audio_bytes": 0}
        assert replace(stored, **places) == replace(read, **places)
        assert b"".join(payload) == (read_payload or b"")


def test_some_requests_are_read_alone_in_the_order_of_the_plan(tmp_path: Path) -> None:
    """Each with its own chunks and payload, whatever order they were asked for in."""
    pairs = [(record(index=i, chunks=chunks_of([(10.0 + i, 2)])), bytes([i, i])) for i in range(4)]
    run = open_run(run_folder(tmp_path, pairs))
    ids = [stored.request_id for stored, _ in pairs]

    assert [(ids[1], [b"\x01\x01"], 1), (ids[3], [b"\x03\x03"], 1)] == [
        (found.request_id, [payload], len(found.chunks))
        for found, payload in run.iter_records(only=[ids[3], ids[1], "another"])
    ]
