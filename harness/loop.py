"""The event loop: uvloop where it installs, else asyncio's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["loop_factory", "loop_name", "run"]

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
