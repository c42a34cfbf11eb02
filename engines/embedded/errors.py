# SPDX-License-Identifier: GPL-3.0-or-later
"""What ends the server or refuses a request, each as one line for a person."""

from __future__ import annotations

__all__ = [
    "BadRequestError",
    "CacheFolderError",
    "EmbeddedError",
    "MissingVoiceError",
    "NothingToSayError",
    "PortTakenError",
    "QueueFullError",
    "SettingsError",
]


class EmbeddedError(Exception):
    """Root of everything raised here on purpose; `exit_code` is what the process ends with."""

    exit_code = 2


class SettingsError(EmbeddedError):
    """A command line setting is out of range; names it, the value and what was expected."""


class PortTakenError(EmbeddedError):
    """The address cannot be bound; names host and port."""


class CacheFolderError(EmbeddedError):
    """The folder for the split graphs cannot be written."""

    exit_code = 6


class MissingVoiceError(EmbeddedError):
    """piper-tts, the voice or what they need is not installed; holds the install command."""

    exit_code = 7


class NothingToSayError(EmbeddedError):
    """The text holds nothing that the voice can speak."""


class QueueFullError(EmbeddedError):
    """Too many requests are open; try again after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadRequestError(EmbeddedError):
    """A request body is wrong: the HTTP status, the field at fault and a short code."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str = "bad_value"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
