"""What can go wrong between a scenario and an engine, as one small tree.

Each error is one line for a person (where, what was found, what was expected, what to do) and
carries the exit code that the command line ends with.
"""

from __future__ import annotations

__all__ = ["ContractError", "EngineError", "UnknownEngineError"]


class EngineError(Exception):
    """Root of everything raised by `engines`; `exit_code` is what the command line returns."""

    exit_code = 2


class ContractError(EngineError):
    """A contract file or the parameters given to it are wrong; names file, key and value."""


class UnknownEngineError(EngineError):
    """No adapter has this name; the message lists the known ones and the closest match."""
