"""Runs of several engines, rates and seeds, whose requests had given latencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.records import PointRecord, RequestRecord, TransportOutcome
from tests.builders.cohorts import GOOD_SELFCHECK
from tests.builders.runs import chunks_of, ms, point, record, run_folder

__all__ = ["Reply", "gamma_engine", "sweep"]

# Seconds of 24 kHz 16-bit audio in bytes.
_BYTES_PER_MS = 48
_SPACING_MS = 50.0


@dataclass(frozen=True)
class Reply:
    """How one request went: first chunk after `ttfp_ms`, then the rest after `gap_ms`.

    The onset lies `silence_ms` into the first chunk of 500 ms. The last text is sent `last_text_ms`
    after dispatch. `outcome` other than ok: no audio.
    """

    ttfp_ms: float
    silence_ms: float = 0.0
    gap_ms: float = 100.0
    last_text_ms: float = 0.0
    outcome: TransportOutcome = TransportOutcome.OK


Engine = Callable[[float, int], Sequence[Reply]]


def gamma_engine(
    *, mean_ms: float = 30.0, shape: float = 40.0, num_requests: int = 60, shift_ms: float = 0.0,
    salt: int = 0, **fields: Any,
) -> Engine:  # fmt: skip
    """An engine whose first chunk takes a gamma-distributed time; another salt, another draw."""

    def replies(rate_rps: float, seed: int) -> list[Reply]:
        random = np.random.default_rng([seed, salt, round(1000 * rate_rps)])
        times = random.gamma(shape, mean_ms / shape, num_requests) + shift_ms
        return [Reply(float(t), **fields) for t in times]

    return replies


def sweep(
    tmp_path: Path,
    engines: Mapping[str, Engine],
    *,
    rates_rps: Sequence[float] = (2.0,),
    seeds: Sequence[int] = (1,),
    name: str = "run",
    prompts: str = "p",
    selfcheck: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Path:
    """A simulated sweep; the prompt at place i is `<prompts><i>` for every engine."""
    points: list[PointRecord] = []
    records: list[RequestRecord] = []
    for seed in seeds:
        for rate in rates_rps:
            for engine, replies_of in engines.items():
                replies = replies_of(rate, seed)
                start_ms = 2000.0 + 100_000.0 * len(points)
                made = _point(engine, rate, seed, start_ms, len(replies), selfcheck)
                points.append(made)
                records.extend(_records(made, start_ms, replies, prompts))
    scenario = {"arrivals": {"process": "constant"}, **fields.pop("scenario", {})}
    return run_folder(
        tmp_path,
        records,
        points=points,
        name=name,
        **{
            "scenario": scenario,
            "engines": [{"name": engine, "base_url": "http://tts.example"} for engine in engines],
            **fields,
        },
    )


def _point(
    engine: str, rate: float, seed: int, start_ms: float, num: int, selfcheck: Any
) -> PointRecord:
    return point(
        f"{engine}-r{rate:g}-s{seed}",
        engine=engine,
        rate_rps=rate,
        seed=seed,
        num_planned=num,
        start_ns=ms(start_ms),
        warmup_end_ns=ms(start_ms),
        measure_end_ns=ms(start_ms + _SPACING_MS * num),
        drain_end_ns=ms(start_ms + _SPACING_MS * num + 30_000),
        selfcheck=dict(GOOD_SELFCHECK if selfcheck is None else selfcheck),
    )


def _records(
    of: PointRecord, start_ms: float, replies: Sequence[Reply], prompts: str
) -> list[RequestRecord]:
    made = []
    for index, reply in enumerate(replies):
        at_ms = start_ms + _SPACING_MS * index
        common: dict[str, Any] = {
            "index": index,
            "scheduled_ms": at_ms,
            "point_id": of.point_id,
            "prompt_id": f"{prompts}{index}",
            "last_text_ns": ms(at_ms + reply.last_text_ms),
        }
        if reply.outcome is not TransportOutcome.OK:
            made.append(record(transport_outcome=reply.outcome, **common))
            continue
        first_ms = at_ms + reply.ttfp_ms
        half_second = 500 * _BYTES_PER_MS
        chunks = chunks_of([(first_ms, half_second), (first_ms + reply.gap_ms, half_second)])
        onset = round(24 * reply.silence_ms)
        made.append(record(chunks=chunks, known_onset_sample=onset, **common))
    return made
