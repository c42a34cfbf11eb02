"""Everything about one request that can be done before its moment: pure but for the adapter."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from engines.base import Adapter, SpeechRequest, Target
from harness.recorder import Recorder, RecorderSettings, RecorderTools
from harness.records import Phase, PointRecord, RequestRecord
from harness.settings import PointSettings
from harness.text_source import TextMode, TextPiece, pace_text

__all__ = ["PlannedArrival", "Prepared", "Preparer", "is_chosen"]

OnFinished = Callable[[Recorder], None]


class PlannedArrival(Protocol):
    """One row of the schedule (`harness.schedule.Arrival`)."""

    @property
    def index(self) -> int: ...
    @property
    def phase(self) -> Phase: ...
    @property
    def scheduled_ns(self) -> int: ...
    @property
    def prompt_id(self) -> str: ...
    @property
    def shard(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request written down ahead of its moment, or (`recorder` None) why it cannot be."""

    arrival: PlannedArrival
    record: RequestRecord
    recorder: Recorder | None
    error: Exception | None


def is_chosen(share: float, seed: int, index: int) -> bool:
    """Whether arrival `index` belongs to a share of all: the same for every engine and run."""
    return random.Random(f"{seed}/{index}").random() < share


class Preparer:
    """Opens exchanges and makes recorders for the arrivals of one point."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        point: PointRecord,
        texts: Mapping[str, str],
        settings: PointSettings,
        tools: RecorderTools,
    ) -> None:
        self._adapter = adapter
        self._point = point
        self._texts = texts
        self._settings = settings
        self._tools = tools

    def target_of(self, arrival: PlannedArrival) -> Target:
        """Where its request will go.

        Raises:
            ContractError: the contract cannot say it.
        """
        return self._adapter.open(self._request(arrival)).target

    def prepare(
        self, arrival: PlannedArrival, *, start_ns: int, on_finished: OnFinished
    ) -> Prepared:
        """A first attempt; `start_ns` is the start of the point on the run clock."""
        record = RequestRecord(
            request_id=self._request_id(arrival),
            point_id=self._point.point_id,
            shard=arrival.shard,
            index=arrival.index,
            phase=arrival.phase,
            prompt_id=arrival.prompt_id,
            text=self._texts[arrival.prompt_id],
            scheduled_ns=start_ns + arrival.scheduled_ns,
        )
        return self.prepare_again(arrival, record, on_finished=on_finished)

    def prepare_again(
        self, arrival: PlannedArrival, record: RequestRecord, *, on_finished: OnFinished
    ) -> Prepared:
        """A further attempt of the same record."""
        try:
            recorder = Recorder(
                record,
                self._adapter.open(self._request(arrival)),
                tools=self._tools,
                settings=self._recorder_settings(record),
                on_finished=on_finished,
            )
        except Exception as error:
            # The adapter could not even open an exchange: ours, not the server's.
            return Prepared(arrival, record, None, error)
        return Prepared(arrival, record, recorder, None)

    @property
    def _is_incremental(self) -> bool:
        pacing = self._settings.text_pacing
        return pacing is not None and pacing.mode is not TextMode.WHOLE

    def _request_id(self, arrival: PlannedArrival) -> str:
        return f"{self._point.point_id}-{arrival.index:06d}"

    def _request(self, arrival: PlannedArrival) -> SpeechRequest:
        common = self._settings.request
        return SpeechRequest(
            request_id=self._request_id(arrival),
            text=self._texts[arrival.prompt_id],
            voice=common.voice,
            language=common.language,
            is_incremental=self._is_incremental,
            params=common.params,
        )

    def _recorder_settings(self, record: RequestRecord) -> RecorderSettings:
        cancel, slow = self._settings.cancel, self._settings.slow_reader
        is_cancelled = cancel is not None and is_chosen(cancel.share, cancel.seed, record.index)
        is_slow = slow is not None and is_chosen(slow.share, slow.seed, record.index)
        return RecorderSettings(
            timeouts=self._settings.wire.timeouts,
            limits=self._settings.wire.limits,
            pieces=self._pieces(record),
            cancel=cancel if is_cancelled else None,
            read_bytes_per_s=slow.bytes_per_s if slow is not None and is_slow else None,
        )

    def _pieces(self, record: RequestRecord) -> tuple[TextPiece, ...]:
        pacing = self._settings.text_pacing
        if pacing is None or not self._is_incremental:
            return ()
        return pace_text(record.text, pacing, seed=(self._point.seed << 32) + record.index)
