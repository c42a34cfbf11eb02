"""A stand-in for `torch.cuda` that runs everything at once and writes down who waited for whom.

Each stream also counts what ran on it and on everybody it has waited for, so that it can be asked
whether one piece of work was bound to be over before another began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Work:
    """Something that ran: the how-manieth of its stream, and how much of each stream was over."""

    what: str
    stream: str
    number: int
    over: Counter[str]

    def is_after(self, other: Work) -> bool:
        """Whether it could not have begun before the other had ended."""
        return self.over[other.stream] >= other.number


class FakeStream:
    def __init__(self, log: list[tuple[Any, ...]], name: str, priority: int) -> None:
        self._log, self.name, self.priority = log, name, priority
        self.over: Counter[str] = Counter()

    def wait_stream(self, other: FakeStream) -> None:
        self._log.append(("wait", self.name, other.name))
        self.over |= other.over

    def wait_event(self, event: FakeEvent) -> None:
        self._log.append(("wait", self.name, event.passed_at))
        self.over |= event.over

    def synchronize(self) -> None:
        self._log.append(("host waits", self.name))


class FakeEvent:
    """`passed_at` names the stream and the count of what ran on it when it was recorded."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.passed_at = "nothing"
        self.over: Counter[str] = Counter()

    def record(self, stream: FakeStream) -> None:
        self.passed_at = f"{stream.name}#{self._cuda.num_runs}"
        self.over = stream.over.copy()

    def synchronize(self) -> None:
        self._cuda.log.append(("host waits", self.passed_at))


class FakeGraph:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.is_reset = False

    def replay(self) -> None:
        self._cuda.run("replay")

    def reset(self) -> None:
        self.is_reset = True


class FakeCuda:
    """Only what the driver uses. Streams are named in the order they are made."""

    NAMES = ("main", "codec", "copies")

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.work: list[Work] = []
        self.streams: dict[str, FakeStream] = {}
        self.graphs: list[FakeGraph] = []
        self.num_runs = 0
        self.num_pools = 0
        self.reserved = 0
        self._host = FakeStream(self.log, "host", 0)
        self._inside = [self._host]

    def Stream(self, *, device: object, priority: int) -> FakeStream:
        name = self.NAMES[len(self.streams)]
        self.streams[name] = FakeStream(self.log, name, priority)
        return self.streams[name]

    def Event(self) -> FakeEvent:
        return FakeEvent(self)

    def CUDAGraph(self) -> FakeGraph:
        self.graphs.append(FakeGraph(self))
        return self.graphs[-1]

    def current_stream(self, device: object) -> FakeStream:
        return self._inside[-1]

    def graph_pool_handle(self) -> int:
        self.num_pools += 1
        return self.num_pools

    def memory_reserved(self, device: object) -> int:
        return self.reserved

    def synchronize(self, device: object) -> None:
        self.log.append(("host waits", "everything"))

    def empty_cache(self) -> None:
        self.reserved = 0

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        self._inside.append(stream)
        yield
        self._inside.pop()

    @contextmanager
    def graph(self, graph: FakeGraph, *, pool: int, stream: FakeStream) -> Iterator[None]:
        self._inside.append(stream)
        self.log.append(("record into pool", pool, stream.name))
        yield
        self._inside.pop()

    def run(self, what: str) -> None:
        """Something ran on the current stream."""
        stream = self._inside[-1]
        self.num_runs += 1
        self.log.append((what, stream.name))
        before = stream.over.copy()
        stream.over[stream.name] += 1
        self.work.append(Work(what, stream.name, stream.over[stream.name], before))
