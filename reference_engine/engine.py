"""The engine as its callers see it: requests in from any thread, events out to their sinks.

The loop itself is `engine_loop`; here are the bounded queue of commands in front of it and the
thread that turns it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from reference_engine.admission import Waiting
from reference_engine.clock import NS_PER_S, Clock
from reference_engine.config import Profile
from reference_engine.delivery import Delivery, Router
from reference_engine.engine_loop import EngineLoop
from reference_engine.errors import EngineClosedError, RefusedError
from reference_engine.messages import AppendText, Cancel, EndReason, Job, RequestStats, Sink
from reference_engine.runner import Runner
from reference_engine.scheduler.ready import Rest
from reference_engine.scheduler.trace import DecisionTrace

__all__ = ["Engine"]

_LOG = logging.getLogger(__name__)
_MIN_RETRY_S = 0.5
_MAX_IDLE_S = 0.5  # a dead delivery thread is noticed within this, even when nothing happens
_COMMANDS_PER_REQUEST = 64


class Engine(EngineLoop):
    """One device and its loop; see `EngineLoop` for the arguments.

    `submit`, `append_text`, `cancel` and `close` may be called from any thread. Without `start`
    the owner calls `turn` itself.
    """

    def __init__(
        self,
        profile: Profile,
        runner: Runner,
        clock: Clock,
        *,
        make_delivery: Callable[[Router], Delivery],
        trace: DecisionTrace | None = None,
    ) -> None:
        super().__init__(profile, runner, clock, make_delivery=make_delivery, trace=trace)
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def num_in_system(self) -> int:
        """Requests that are queued or in progress."""
        return len(self._in_system)

    def submit(self, job: Job, sink: Sink) -> RequestStats:
        """Queue a request; events reach `sink` from the delivery thread.

        Returns:
            What is known about it, filled in as it goes on; complete with its last event.

        Raises:
            UnsayableError: it can never be served by this profile.
            RefusedError: the queue is full; try again later.
            EngineClosedError: the engine is shutting down.
        """
        max_frames = self.admission.check(job)
        with self._lock:
            self._check_room()
            assert job.request_id not in self._in_system, "request ids are unique"
            self._in_system.add(job.request_id)
            self.meters.num_submitted += 1
            stats = RequestStats(job.request_id, submitted_ns=self._clock.now_ns())
            self._incoming.append(Waiting(job, sink, stats, max_frames))
        self._wakeup.set()
        return stats

    def check_room(self) -> None:
        """Raise what `submit` would raise of any request now, whatever it says.

        Raises:
            RefusedError: the queue is full; try again later.
            EngineClosedError: the engine is shutting down.
        """
        with self._lock:
            self._check_room()

    def _check_room(self) -> None:
        if self._is_closed:
            raise EngineClosedError("the engine is shutting down; no new requests")
        now_ns = self._clock.now_ns()
        num_here = len(self._in_system)
        # Places that the load guard took back are still held by those who play.
        num_behind = num_here - max(self.load.num_places, self.admission.num_active)
        if num_behind >= self._max_waiting(now_ns):
            self.meters.num_refused += 1
            self.standing_queue.wanted(now_ns)
            # By then all who are here have got a place, so that a newcomer waits for none.
            place_s = self.standing_queue.place_s or _MIN_RETRY_S
            raise RefusedError(
                f"{num_here} requests are queued or in progress; try again later",
                retry_after_s=max(_MIN_RETRY_S, place_s * (num_behind + 1)),
            )

    def _max_waiting(self, now_ns: int) -> int:
        """How many may queue: behind a queue that stands, those who get a place soon enough."""
        standing = self.standing_queue.max_waiting(now_ns)
        limit = self.profile.max_waiting
        return limit if standing is None else min(limit, standing)

    def append_text(self, command: AppendText) -> None:
        """More text for a request; ignored where it is over.

        Raises:
            RefusedError: the engine is not keeping up with commands.
        """
        with self._lock:
            if len(self._incoming) >= _COMMANDS_PER_REQUEST * (len(self._in_system) + 1):
                raise RefusedError("too many commands are waiting", retry_after_s=_MIN_RETRY_S)
            self._incoming.append(command)
        self._wakeup.set()

    def cancel(self, request_id: str) -> None:
        """Stop a request within one step; ignored where it is over."""
        self._incoming.append(Cancel(request_id))
        self._wakeup.set()

    def start(self) -> None:
        """Run the loop in its own thread."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the loop's thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Refuse newcomers, end what is in progress, stop the thread. Idempotent."""
        with self._lock:
            self._is_closed = True
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        else:
            self._end_all(EndReason.SHUTDOWN, "the engine is shutting down")
        self._delivery.close()

    def _loop(self) -> None:
        while not self._is_closed:
            # Cleared before looking, so that what comes in while looking is not slept over.
            self._wakeup.clear()
            try:
                rest = self.turn()
            except Exception:  # a bug of ours: nobody in progress can be vouched for
                _LOG.exception("scheduling turn failed; ending every request in progress")
                self.meters.num_loop_faults += 1
                self._end_or_abandon(EndReason.FAILED, "the engine had an internal error")
                continue
            if rest is not None:
                self._wakeup.wait(self._idle_s(rest))
        self._end_or_abandon(EndReason.SHUTDOWN, "the engine is shutting down")

    def _end_or_abandon(self, reason: EndReason, text: str) -> None:
        """End everybody; where not even that works the device is lost, and the loop with it."""
        try:
            self._end_all(reason, text)
        except Exception:
            _LOG.exception("the device cannot be used any more; the engine stops")
            with self._lock:
                self._is_closed = True
            self._abandon_all("the device cannot be used any more")

    def _idle_s(self, rest: Rest) -> float:
        if rest.until_ns is None:
            return _MAX_IDLE_S
        return min(_MAX_IDLE_S, max(0.0, (rest.until_ns - self._clock.now_ns()) / NS_PER_S))
