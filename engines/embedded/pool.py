# SPDX-License-Identifier: GPL-3.0-or-later
"""The inference threads and the requests that share them.

All bookkeeping happens on the event loop: a thread only runs `Utterance.step` and hands the
result back, so there is no lock and each request's state has one writer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from engines.embedded.errors import QueueFullError
from engines.embedded.scheduler import (
    Policy,
    ReadyWork,
    next_playback_deadline_ns,
    retry_after_s,
)
from engines.embedded.synthesiser import Step, Utterance

__all__ = ["Job", "PoolLimits", "SynthesisPool"]

_BYTES_PER_SAMPLE = 2
# Weight of the newest request in the running mean of service times.
_MEAN_WEIGHT_SHIFT = 3


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """`max_unsent_bytes`: a request this far ahead of its reader rests until it has read."""

    num_workers: int
    max_open: int
    max_unsent_bytes: int


@dataclass(slots=True, eq=False)
class Job:
    """One admitted request; written by the pool alone."""

    arrival_seq: int
    utterance: Utterance
    chunks: deque[bytes] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    unsent_bytes: int = 0
    playback_deadline_ns: int | None = None
    num_steps: int = 0
    inference_ns: int = 0
    is_running: bool = False
    is_finished: bool = False
    is_released: bool = False
    error: Exception | None = None

    def can_run(self, max_unsent_bytes: int) -> bool:
        """Whether a thread could take the next step now."""
        is_done = self.is_finished or self.is_released
        return not (self.is_running or is_done or self.unsent_bytes > max_unsent_bytes)


class SynthesisPool:
    """Runs the steps of all requests on `num_workers` threads, in the order of a policy."""

    def __init__(
        self,
        limits: PoolLimits,
        policy: Policy,
        *,
        sample_rate_hz: int,
        clock_ns: Callable[[], int],
    ) -> None:
        self._limits = limits
        self._policy = policy
        self._sample_rate_hz = sample_rate_hz
        self._clock_ns = clock_ns
        self._threads = ThreadPoolExecutor(limits.num_workers, thread_name_prefix="inference")
        self._open: dict[int, Job] = {}
        self._num_running = 0
        self._next_seq = 0
        self._mean_service_ns = 0

    @property
    def num_open(self) -> int:
        """Requests that were admitted and not yet released."""
        return len(self._open)

    @property
    def num_running(self) -> int:
        """Steps that are on a thread now."""
        return self._num_running

    def submit(self, utterance: Utterance) -> Job:
        """Admit a request.

        Raises:
            QueueFullError: as many as allowed are open.
        """
        if len(self._open) >= self._limits.max_open:
            raise QueueFullError(
                f"{len(self._open)} requests are open, as many as this server takes; "
                "try again later",
                retry_after_s=retry_after_s(
                    len(self._open),
                    self._limits.num_workers,
                    mean_service_ns=self._mean_service_ns,
                ),
            )
        job = Job(arrival_seq=self._next_seq, utterance=utterance)
        self._next_seq += 1
        self._open[job.arrival_seq] = job
        self._fill()
        return job

    async def next_chunk(self, job: Job) -> bytes | None:
        """The next audio of a request, None after the last.

        Raises:
            Exception: whatever its step raised, after the chunks before it.
        """
        while not job.chunks:
            if job.error is not None:
                raise job.error
            if job.is_finished:
                return None
            job.changed.clear()
            await job.changed.wait()
        chunk = job.chunks.popleft()
        job.unsent_bytes -= len(chunk)
        self._fill()
        return chunk

    def release(self, job: Job) -> None:
        """Let go of a request, finished or not: its place is free once no step of it runs.

        A running step ends unheard, no further one begins. Releasing twice does no harm.
        """
        job.is_released = True
        job.chunks.clear()
        job.unsent_bytes = 0
        if not job.is_running:
            self._open.pop(job.arrival_seq, None)

    def close(self) -> None:
        """Begin no further step; does not wait for running ones."""
        for job in list(self._open.values()):
            self.release(job)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _fill(self) -> None:
        """Give every free thread the step that the policy picks."""
        while self._num_running < self._limits.num_workers:
            ready = [
                ReadyWork(job.arrival_seq, job.playback_deadline_ns)
                for job in self._open.values()
                if job.can_run(self._limits.max_unsent_bytes)
            ]
            if not ready:
                return
            self._start(self._open[self._policy(ready).arrival_seq])

    def _start(self, job: Job) -> None:
        job.is_running = True
        self._num_running += 1
        began_ns = self._clock_ns()
        future = asyncio.get_running_loop().run_in_executor(self._threads, job.utterance.step)
        future.add_done_callback(partial(self._step_ended, job, began_ns))

    def _step_ended(self, job: Job, began_ns: int, future: asyncio.Future[Step]) -> None:
        self._num_running -= 1
        job.is_running = False
        if not future.cancelled():
            self._take(job, future, began_ns)
        if job.is_released:
            self._open.pop(job.arrival_seq, None)
        job.changed.set()
        self._fill()

    def _take(self, job: Job, future: asyncio.Future[Step], began_ns: int) -> None:
        """Move the result of a step into its request."""
        now_ns = self._clock_ns()
        job.num_steps += 1
        job.inference_ns += now_ns - began_ns
        error = future.exception()
        if error is not None:
            assert isinstance(error, Exception)
            job.error, job.is_finished = error, True
            return
        step = future.result()
        job.is_finished = step.is_last
        if step.is_last:
            self._note_service(job.inference_ns)
        if step.pcm and not job.is_released:
            job.chunks.append(step.pcm)
            job.unsent_bytes += len(step.pcm)
            num_samples = len(step.pcm) // _BYTES_PER_SAMPLE
            job.playback_deadline_ns = next_playback_deadline_ns(
                job.playback_deadline_ns,
                now_ns,
                audio_ns=num_samples * 1_000_000_000 // self._sample_rate_hz,
            )

    def _note_service(self, inference_ns: int) -> None:
        if not self._mean_service_ns:
            self._mean_service_ns = inference_ns
        self._mean_service_ns += (inference_ns - self._mean_service_ns) >> _MEAN_WEIGHT_SHIFT
