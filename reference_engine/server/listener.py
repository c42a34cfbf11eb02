"""Carries a request's events from the delivery thread to the handler that waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from reference_engine.messages import Audio, Event

__all__ = ["Listener"]


class Listener:
    """The sink of one request. Made on the event loop; `send` comes from the delivery thread.

    What counts as unread is what the connection has not taken yet, so a slow reader shows here.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._has_news = asyncio.Event()
        self._lock = threading.Lock()
        self._unread = 0

    def send(self, event: Event) -> None:
        """Take one event; raises where the event loop is gone."""
        if isinstance(event, Audio):
            with self._lock:
                self._unread += len(event.pcm or b"")
        self._events.append(event)
        self._loop.call_soon_threadsafe(self._has_news.set)

    def unread_bytes(self) -> int:
        """Audio sent here that the connection has not taken."""
        return self._unread

    async def next(self) -> Event:
        """The next event, in order."""
        while not self._events:
            self._has_news.clear()
            # Looked at again: an event may have come between the look and the clearing.
            if not self._events:
                await self._has_news.wait()
        return self._events.popleft()

    def taken(self, num_bytes: int) -> None:
        """The connection took so much audio."""
        with self._lock:
            self._unread -= num_bytes
