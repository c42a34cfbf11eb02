"""Mistakes and accidents of the reference engine: one line each, with an exit code.

A person's mistakes carry `exit_code` (what the command line returns). What ends one request alone
is a `RequestError` with the HTTP status that a server answers.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "CheckpointError",
    "EngineClosedError",
    "MissingExtraError",
    "ProfileError",
    "PromptError",
    "ReferenceEngineError",
    "RefusedError",
    "RequestError",
    "SamplingError",
    "StepError",
    "UncapturedShapeError",
    "UnsayableError",
]


class ReferenceEngineError(Exception):
    """Root of everything raised by `reference_engine`."""

    exit_code = 2


class ProfileError(ReferenceEngineError):
    """A profile or a cost table is wrong; names file, key, value and what was expected."""

    exit_code = 2


class ArgumentError(ReferenceEngineError):
    """A name or folder given to a command is wrong; says what was expected."""

    exit_code = 2


class CheckpointError(ReferenceEngineError):
    """A checkpoint folder is missing, damaged, or not the layout this engine reads.

    Names the file, the tensor or key in it, what was found and what was expected.
    """

    exit_code = 7


class MissingExtraError(ReferenceEngineError):
    """A package that the engine needs is not installed; holds the install command."""

    exit_code = 7


class EngineClosedError(ReferenceEngineError):
    """The engine is not running (never started, drained, or ended by a device fault)."""

    exit_code = 4


class UncapturedShapeError(ReferenceEngineError):
    """A batch asked for a shape that was never captured: a bug in whoever built the batch."""

    exit_code = 2


class StepError(ReferenceEngineError):
    """A step failed for the slots named, before any slot of its batch had advanced.

    The other slots of the batch are as they were and may run again. Any other exception out of a
    step leaves the whole batch in doubt.
    """

    def __init__(self, slots: tuple[int, ...], text: str) -> None:
        super().__init__(text)
        self.slots = slots


class RequestError(ReferenceEngineError):
    """One request cannot be served; the engine goes on. `status` is the HTTP status to answer."""

    status = 500


class UnsayableError(RequestError):
    """The request can never be served by this profile (no bucket, no room, nothing to say)."""

    status = 422


class PromptError(UnsayableError):
    """A text, voice, language or instruction that the model cannot be asked to speak."""


class SamplingError(UnsayableError):
    """Sampling settings out of range, or wider than the profile's sampler serves."""


class RefusedError(RequestError):
    """No room now; `retry_after_s` is when a retry has a chance."""

    status = 429

    def __init__(self, text: str, *, retry_after_s: float) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
