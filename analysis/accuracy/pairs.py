"""Each request of a run with the truth about it, on one clock."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.aggregate import join_requests
from analysis.derive import derive_run
from analysis.errors import RunDataError
from engines.base import PayloadEncoding
from harness.records import Phase
from harness.store import StoredRun, open_run
from harness.truth.expected import Bracket, ExpectedReply
from harness.truth.marks import read_mark

__all__ = ["REPORTED_METRICS", "ChunkArrays", "Pair", "Reported", "TruthRun", "open_truth_run"]

# Latencies that have a true value beside them, counted from dispatch.
REPORTED_METRICS = ("ttfb", "ttfp", "audible_received", "audible_ttfa", "e2e")


@dataclass(frozen=True, slots=True)
class ChunkArrays:
    """The chunks of one request, recorded and derived. `num_samples`: -1 where unknown."""

    arrival_ns: NDArray[np.int64]
    read_ns: NDArray[np.int64]
    end: NDArray[np.int64]
    num_samples: NDArray[np.int64]
    uncertainty_ns: NDArray[np.int64]
    stall_ns: NDArray[np.int64]
    is_undecided: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.arrival_ns)


@dataclass(frozen=True, slots=True)
class Reported:
    """What the run says of one request; metrics in their own units, by name."""

    request_id: str
    scheduled_ns: int
    dispatched_ns: int | None
    sent_ns: int | None
    outcome: str
    onset_sample: int | None
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Pair:
    """One request as it was reported, and the truth about it (None: it never reached the server).

    shift_ns: from CLOCK_MONOTONIC to the run clock.
    is_message: chunks are whole messages, so chunk i of the client is chunk i of the server; else
        both are positions in one stream of bytes.
    """

    reported: Reported
    chunks: ChunkArrays
    payload: bytes | None
    truth: ExpectedReply | None
    shift_ns: int
    is_message: bool

    def on_run_clock(self, bracket: Bracket) -> Bracket:
        """A bracket of the truth where the run's own stamps are."""
        return bracket.shifted(self.shift_ns)

    def payload_ends(self) -> list[int]:
        """Positions in the true payload behind each chunk of the client."""
        if not self.is_message:
            return [int(end) for end in self.chunks.end]
        assert self.truth is not None
        return list(self.truth.chunk_ends[: len(self.chunks)])


@dataclass(frozen=True, slots=True)
class TruthRun:
    """A run that can be laid beside a truth log."""

    stored: StoredRun
    anchor_ns: int

    def pairs(self, expected: Mapping[int, ExpectedReply]) -> Iterator[Pair]:
        """The requests of the measurement phase, in the order of the plan."""
        derived = derive_run(self.stored.folder)
        requests = join_requests(self.stored, derived)
        keys = ["request_id", "seq"]
        chunks = self.stored.chunks.merge(derived.chunks, on=keys, validate="one_to_one")
        groups = chunks.groupby("request_id", sort=False)
        rows_of = {name: chunks.iloc[rows] for name, rows in groups.indices.items()}
        none = chunks.iloc[:0]
        measured = requests[requests["phase"] == Phase.MEASURE.value]
        for row in measured.to_dict("records"):
            payload = self.stored.payload(row["request_id"])
            number = _truth_number(row["server_timing"], payload)
            yield Pair(
                reported=_reported(row),
                chunks=_arrays(rows_of.get(row["request_id"], none)),
                payload=payload,
                truth=None if number is None else expected.get(number),
                shift_ns=-self.anchor_ns,
                is_message=row["payload_encoding"] == PayloadEncoding.BASE64.value,
            )


def open_truth_run(folder: Path) -> TruthRun:
    """Open a run folder for comparison.

    Raises:
        RunDataError: its clock cannot be laid beside a log of CLOCK_MONOTONIC.
    """
    stored = open_run(folder)
    anchor_ns = stored.record.clock.get("anchor_monotonic_ns")
    if anchor_ns is None:
        raise RunDataError(
            f"{folder}: run.json has no clock.anchor_monotonic_ns; only a run of this version can "
            "be compared with a truth log"
        )
    return TruthRun(stored, int(anchor_ns))


def _truth_number(server_timing: Any, payload: bytes | None) -> int | None:
    """The server's number of a request: as its header said, or as its first chunk is marked.

    A reply that was broken off leaves no facts in the record.
    """
    facts = json.loads(server_timing) if isinstance(server_timing, str) else {}
    if "truth_request" in facts:
        return int(facts["truth_request"])
    mark = None if payload is None else read_mark(payload)
    return None if mark is None else mark.request


def _reported(row: Mapping[Hashable, Any]) -> Reported:
    return Reported(
        request_id=str(row["request_id"]),
        scheduled_ns=int(row["scheduled_ns"]),
        dispatched_ns=_whole(row["dispatched_ns"]),
        sent_ns=_whole(row["sent_ns"]),
        outcome=str(row["outcome"]),
        onset_sample=_whole(row["onset_sample"]),
        metrics={name: _number(row[name]) for name in REPORTED_METRICS},
    )


def _whole(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _arrays(rows: Any) -> ChunkArrays:
    def column(name: str, missing: int) -> NDArray[np.int64]:
        return np.asarray(rows[name].fillna(missing), dtype=np.int64)

    return ChunkArrays(
        arrival_ns=column("arrival_ns", 0),
        read_ns=column("read_ns", 0),
        end=column("offset", 0) + column("num_bytes", 0),
        num_samples=column("num_samples", -1),
        uncertainty_ns=column("uncertainty_ns", 0),
        stall_ns=column("stall_ns", 0),
        is_undecided=np.asarray(rows["is_undecided"].fillna(False), dtype=np.bool_),
    )
