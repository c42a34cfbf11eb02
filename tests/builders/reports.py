"""A run folder with two engines at a few rates, small but with everything a report shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.records import Phase, PointRecord, RequestRecord, TransportOutcome
from tests.builders.runs import PCM_24K, chunks_of, ms, point, record, run_folder
from tests.builders.speech import ScriptedTranscriber

__all__ = ["HOSTILE", "Shape", "heard_run", "report_run"]

HOSTILE = "</script><script>alert('x')</script> & <b>bold</b>"
RATE_HZ = 24_000
WARMUP_MS = 1_000
PROMPTS = (
    "Thank you for calling, how can I help you today?",
    "Your parcel should arrive tomorrow before noon.",
    "Sorry about the wait, I am looking into that now.",
    HOSTILE,
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How one engine's replies arrive: first chunk, growth with load, chunk length, stall."""

    first_ms: float = 60.0
    per_rate_ms: float = 20.0
    chunk_ms: float = 200.0
    pace: float = 0.6  # time between chunks over their media time
    stall_share: float = 0.0
    fail_share: float = 0.0
    min_seconds: float = 1.0  # of sound
    max_seconds: float = 2.0


STREAM = Shape(stall_share=0.2)
SENTENCE = Shape(first_ms=220.0, per_rate_ms=70.0, chunk_ms=900.0, pace=0.2, fail_share=0.1)


def report_run(
    tmp_path: Path,
    *,
    rates: tuple[float, ...] = (0.5, 1.0, 2.0),
    num_requests: int = 24,
    engines: dict[str, Shape] | None = None,
    name: str = "run",
    seeds: tuple[int, ...] = (1,),
    **fields,
) -> Path:
    """A closed run folder; `fields` go to its run record."""
    shapes = engines or {"stream": STREAM, "sentence": SENTENCE}
    points, records = [], []
    begin_ms = 0.0
    for engine, shape in shapes.items():
        for rate in rates:
            for seed in seeds:
                made = _point(engine, rate, num_requests, begin_ms, seed)
                points.append(made)
                rng = np.random.default_rng(len(points))
                records += _requests(made, shape, rng)
                begin_ms = made.drain_end_ns / 1e6 + 1_000
    info = {
        "engines": [
            {"name": each, "contract": "fake", "base_url": "http://127.0.0.1:1", "params": {}}
            for each in shapes
        ],
        "machine": {"cpu": "test", "cores": 2},
        "versions": {"earwitness": "0"},
        "command": ["earwitness", "run", "a scenario.yaml", "-o", "results/x"],
    }
    return run_folder(tmp_path, records, points=points, name=name, **{**info, **fields})


def heard_run(tmp_path: Path, **settings) -> Path:
    """The same with transcripts, by a recogniser that always hears the first prompt."""
    from analysis.speech import score_run

    folder = report_run(tmp_path, **settings)
    score_run(folder, transcriber=ScriptedTranscriber(PROMPTS[0], language="xx"), seed=1)
    return folder


def _point(engine: str, rate: float, num_requests: int, begin_ms: float, seed: int) -> PointRecord:
    measure_ms = 1000 * num_requests / rate
    return point(
        f"{engine}-r{rate:g}-s{seed}",
        engine=engine,
        rate_rps=rate,
        seed=seed,
        num_planned=num_requests + 2,
        start_ns=ms(begin_ms),
        warmup_end_ns=ms(begin_ms + WARMUP_MS),
        measure_end_ns=ms(begin_ms + WARMUP_MS + measure_ms),
        drain_end_ns=ms(begin_ms + WARMUP_MS + measure_ms + 5_000),
    )


def _requests(
    made: PointRecord, shape: Shape, rng: np.random.Generator
) -> list[tuple[RequestRecord, bytes | None]]:
    num_measured = made.num_planned - 2
    begin_ms = made.warmup_end_ns / 1e6
    gaps = rng.exponential(1000 / made.rate_rps, num_measured)
    # Scaled so that exactly the planned number falls into the phase.
    times = begin_ms + np.cumsum(gaps) / gaps.sum() * (1000 * num_measured / made.rate_rps) * 0.98
    warmup = [begin_ms - WARMUP_MS + 100, begin_ms - WARMUP_MS + 500]
    return [
        _request(made, shape, rng, index, at_ms, is_warmup=index < len(warmup))
        for index, at_ms in enumerate([*warmup, *times])
    ]


def _request(
    made: PointRecord,
    shape: Shape,
    rng: np.random.Generator,
    index: int,
    at_ms: float,
    *,
    is_warmup: bool,
) -> tuple[RequestRecord, bytes | None]:
    text = PROMPTS[index % len(PROMPTS)]
    common = {
        "index": index,
        "point_id": made.point_id,
        "phase": Phase.WARMUP if is_warmup else Phase.MEASURE,
        "prompt_id": f"p{index % len(PROMPTS)}",
        "text": text,
        "scheduled_ms": at_ms,
        "dispatched_ns": ms(at_ms + 0.1),
        "sent_ns": ms(at_ms + 0.2),
        "last_text_ns": ms(at_ms + 0.2),
    }
    if not is_warmup and rng.random() < shape.fail_share:
        failed = record(
            **common,
            transport_outcome=TransportOutcome.HTTP_ERROR,
            http_status=500,
            error_kind="status",
            error_text=f"server said {HOSTILE}",
            finished_ns=ms(at_ms + 30),
            format=None,
        )
        return failed, None
    payload = _speech(rng, shape)
    first_ms = shape.first_ms + shape.per_rate_ms * made.rate_rps + rng.exponential(30)
    return _reply(payload, shape, rng, at_ms, first_ms, common), payload


def _reply(payload, shape, rng, at_ms, first_ms, common) -> RequestRecord:
    step = round(shape.chunk_ms * RATE_HZ / 1000) * 2
    sizes = [len(payload[i : i + step]) for i in range(0, len(payload), step)]
    has_stall = rng.random() < shape.stall_share
    deliveries, when = [], at_ms + first_ms
    for number, size in enumerate(sizes):
        late = 300.0 if has_stall and number == len(sizes) // 2 else 0.0
        when += 0.0 if number == 0 else shape.chunk_ms * shape.pace + late
        deliveries.append((when, size))
    chunks = chunks_of(deliveries)
    return record(**common, chunks=chunks, headers_ns=ms(at_ms + 5), format=PCM_24K)


def _speech(rng: np.random.Generator, shape: Shape) -> bytes:
    """40 ms of silence, then a wavering tone."""
    seconds = shape.min_seconds + rng.random() * (shape.max_seconds - shape.min_seconds)
    times = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    tone = 0.2 * np.sin(2 * np.pi * 220 * times) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * times))
    samples = np.concatenate([np.zeros(round(0.04 * RATE_HZ)), tone])
    return (samples * 32_767).astype("<i2").tobytes()
