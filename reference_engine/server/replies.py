"""What a client is told when its request cannot be served: one shape for every client library.

`detail` is where clients of Nari's server look (a line, or a list with the place of each fault),
`error` is where OpenAI's client library looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

__all__ = ["Fault", "ReplyError", "error_body", "error_reply"]

_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a request body: what kind, where, what to do, and what was found there."""

    kind: str
    where: tuple[str | int, ...]
    text: str
    found: Any = None

    def as_json(self) -> dict[str, Any]:
        """As FastAPI servers list it; what was found is cut short."""
        shown = self.found if isinstance(self.found, bool | int | float) else ascii(self.found)
        if isinstance(shown, str):
            shown = shown[:_MAX_SHOWN]
        elif not math.isfinite(shown) or abs(shown) > 2**53:
            shown = str(shown)[:_MAX_SHOWN]
        where = [part[:_MAX_SHOWN] if isinstance(part, str) else part for part in self.where]
        return {"type": self.kind, "loc": where, "msg": self.text, "input": shown}


class ReplyError(Exception):
    """Ends a request with an HTTP status and one line."""

    def __init__(
        self,
        status: int,
        text: str,
        *,
        code: str,
        param: str | None = None,
        retry_after_s: float | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(text)
        self.status, self.code, self.param = status, code, param
        self.retry_after_s, self.faults = retry_after_s, tuple(faults)


def error_body(error: ReplyError) -> dict[str, Any]:
    """The JSON of a refusal."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    detail = [fault.as_json() for fault in error.faults] or str(error)
    said = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    return {"detail": detail, "error": said}


def error_reply(error: ReplyError) -> web.Response:
    """The refusal as a response, with Retry-After where a retry has a chance."""
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return web.json_response(error_body(error), status=error.status, headers=headers)
