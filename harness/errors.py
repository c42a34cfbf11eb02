"""Mistakes and accidents a person can mend, each one line and one exit code."""

from __future__ import annotations

__all__ = [
    "AllRequestsFailedError",
    "AuthorizationError",
    "EngineNotReadyError",
    "HarnessError",
    "LoadStoppedError",
    "MissingExtraError",
    "RunFolderError",
    "RunInterruptedError",
    "ScenarioError",
]


class HarnessError(Exception):
    """Root of everything raised by `harness`; `exit_code` is what the command line returns."""

    exit_code = 2


class ScenarioError(HarnessError):
    """A scenario, prompt set or argument is wrong; names file, key, value and what was expected."""

    exit_code = 2


class AuthorizationError(HarnessError):
    """A run would load a public host, or use a key or a command, without consent."""

    exit_code = 2


class EngineNotReadyError(HarnessError):
    """The target cannot be reached, is not ready, or is not who the contract says."""

    exit_code = 4


class AllRequestsFailedError(HarnessError):
    """Every request of the measurement failed; the folder is complete and can be read."""

    exit_code = 5


class RunFolderError(HarnessError):
    """A run folder exists, cannot be written, is full, or cannot be read."""

    exit_code = 6


class MissingExtraError(HarnessError):
    """An optional part is not installed; the message holds the command that installs it."""

    exit_code = 7


class RunInterruptedError(HarnessError):
    """The user ended it; where a folder exists, it is closed and can be read."""

    exit_code = 130


class LoadStoppedError(HarnessError):
    """A safety rule ended a run; the folder is closed and says why."""

    exit_code = 3
