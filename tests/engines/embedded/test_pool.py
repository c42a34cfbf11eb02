"""How requests share the inference threads."""

from __future__ import annotations

import asyncio

import pytest

from engines.embedded.errors import QueueFullError
from engines.embedded.pool import Job, PoolLimits, SynthesisPool
from engines.embedded.scheduler import POLICIES, PolicyName
from tests.engines.embedded.fakes import SAMPLE_RATE_HZ, FakeVoice, eventually, samples


def pool_of(
    *, policy: str = "deadline", workers: int = 1, max_open: int = 10, max_unsent: int = 10**6
) -> SynthesisPool:
    limits = PoolLimits(num_workers=workers, max_open=max_open, max_unsent_bytes=max_unsent)
    return SynthesisPool(
        limits,
        POLICIES[PolicyName(policy)],
        sample_rate_hz=SAMPLE_RATE_HZ,
        clock_ns=lambda: 0,
    )


async def drain(pool: SynthesisPool, job: Job) -> list[bytes]:
    chunks = []
    while (chunk := await pool.next_chunk(job)) is not None:
        chunks.append(chunk)
    pool.release(job)
    return chunks


async def _order_of_two(policy: str) -> list[tuple[str, int]]:
    """The steps run when B arrives while A's second step is on the only thread."""
    voice = FakeVoice([samples(100)] * 4, is_gated=True)
    pool = pool_of(policy=policy)
    first = pool.submit(voice.open("A", speed=1))
    voice.permit()
    await eventually(lambda: voice.log == [("A", 0), ("A", 1)])
    second = pool.submit(voice.open("B", speed=1))
    voice.permit(100)
    await asyncio.gather(drain(pool, first), drain(pool, second))
    pool.close()
    return voice.log


def test_deadline_policy_lets_a_newcomer_speak_and_then_shares():
    """B's first sound comes next; then whoever has the least audio ahead."""
    expected = ["A0", "A1", "B0", "B1", "A2", "B2", "A3", "B3"]

    assert expected == [f"{text}{place}" for text, place in asyncio.run(_order_of_two("deadline"))]


def test_fifo_policy_finishes_the_older_request_first():
    """B waits for the end of A: the contrast to the deadline policy."""
    expected = ["A0", "A1", "A2", "A3", "B0", "B1", "B2", "B3"]

    assert expected == [f"{text}{place}" for text, place in asyncio.run(_order_of_two("fifo"))]


def test_two_workers_run_two_requests_at_once():
    """Both first steps are on a thread before either has ended."""

    async def scene() -> set[str]:
        voice = FakeVoice(is_gated=True)
        pool = pool_of(workers=2)
        jobs = [pool.submit(voice.open(name, speed=1)) for name in "ABC"]
        await eventually(lambda: len(voice.log) == 2)
        running = {text for text, _ in voice.log}
        voice.permit(3)
        await asyncio.gather(*(drain(pool, job) for job in jobs))
        pool.close()
        return running

    assert {"A", "B"} == asyncio.run(scene())


def test_a_reader_who_lags_pauses_its_own_request_only():
    """With 200 unread bytes over a limit of 100, A rests while B runs to its end."""

    async def scene() -> tuple[int, list[bytes], list[bytes]]:
        voice = FakeVoice([samples(100)] * 3)
        pool = pool_of(max_unsent=100)
        slow = pool.submit(voice.open("A", speed=1))
        fast = pool.submit(voice.open("B", speed=1))
        from_fast = await drain(pool, fast)
        num_slow_steps = len([text for text, _ in voice.log if text == "A"])
        from_slow = await drain(pool, slow)
        pool.close()
        return num_slow_steps, from_fast, from_slow

    whole = [samples(100)] * 3
    assert (1, whole, whole) == asyncio.run(scene())


def test_a_full_pool_refuses_with_a_hint_and_admits_again_after_a_release():
    """The third of two is refused for at least a second; once one is released, one fits."""

    async def scene() -> tuple[int, int]:
        voice = FakeVoice(is_gated=True)
        pool = pool_of(max_open=2)
        jobs = [pool.submit(voice.open(name, speed=1)) for name in "AB"]
        with pytest.raises(QueueFullError) as caught:
            pool.submit(voice.open("C", speed=1))
        pool.release(jobs[1])
        jobs[1] = pool.submit(voice.open("D", speed=1))
        voice.permit(2)
        await asyncio.gather(*(drain(pool, job) for job in jobs))
        pool.close()
        return caught.value.retry_after_s, pool.num_open

    assert (1, 0) == asyncio.run(scene())


def test_a_released_request_gets_no_further_step():
    """The step that runs ends unheard, and its place is free only then."""

    async def scene() -> tuple[list[tuple[str, int]], list[int]]:
        voice = FakeVoice([samples(100)] * 5, is_gated=True)
        pool = pool_of()
        job = pool.submit(voice.open("A", speed=1))
        voice.permit()
        await eventually(lambda: len(voice.log) == 2)
        pool.release(job)
        places = [pool.num_open]
        voice.permit(100)
        await eventually(lambda: pool.num_running == 0)
        places.append(pool.num_open)
        pool.close()
        return voice.log, places

    assert ([("A", 0), ("A", 1)], [1, 0]) == asyncio.run(scene())


def test_audio_before_a_failure_is_delivered_first():
    """The error comes to the reader after the chunks that were made."""

    async def scene() -> bytes | None:
        pool = pool_of()
        job = pool.submit(FakeVoice([samples(5), OSError("gone")]).open("A", speed=1))
        await eventually(lambda: job.is_finished)
        chunk = await pool.next_chunk(job)
        with pytest.raises(OSError, match="gone"):
            await pool.next_chunk(job)
        pool.release(job)
        pool.close()
        return chunk

    assert samples(5) == asyncio.run(scene())
