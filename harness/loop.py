"""The event loop: uvloop where it installs, else asyncio's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["FaultTrap", "loop_factory", "loop_name", "run"]

Result = TypeVar("Result")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the loop here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def loop_name(loop: asyncio.AbstractEventLoop) -> str:
    """`uvloop` or `asyncio`, for the run record."""
    return type(loop).__module__.split(".")[0]


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on a fresh loop; Ctrl-C cancels it."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


class FaultTrap:
    """While it is set, an exception that no callback caught goes to `on_fault`.

    Such an exception is a bug of ours. Left to the loop it would be one line of a log, and whoever
    waits for the callback would wait for ever.
    """

    def __init__(self, on_fault: Callable[[Exception], None]) -> None:
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._old = self._loop.get_exception_handler()

    def __enter__(self) -> Self:
        self._loop.set_exception_handler(self._on_exception)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.set_exception_handler(self._old)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception):
            self._on_fault(error)
        else:
            loop.default_exception_handler(context)
