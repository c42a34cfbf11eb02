"""Mistakes and accidents of analysis that a person can mend: one line and one exit code each."""

from __future__ import annotations

__all__ = [
    "AnalysisError",
    "AudioDecodeError",
    "MissingExtraError",
    "NotComparableError",
    "RulesError",
    "RunDataError",
    "UnsupportedAudioError",
    "WeightsError",
]


class AnalysisError(Exception):
    """Root of everything raised by `analysis`; `exit_code` is what the command line returns."""

    exit_code = 2


class RunDataError(AnalysisError):
    """A run folder cannot be read, lacks a table, or its derived part cannot be written."""

    exit_code = 6


class AudioDecodeError(AnalysisError):
    """Payload bytes are not what their format says; names byte, found and expected."""

    exit_code = 2


class RulesError(AnalysisError):
    """A file of rules, objectives or a baseline is wrong; names file, key, value, expectation."""

    exit_code = 2


class NotComparableError(AnalysisError):
    """Runs differ in what must be alike for a comparison; names each difference."""

    exit_code = 2


class UnsupportedAudioError(AnalysisError):
    """A known audio format that this installation has no decoder for."""

    exit_code = 7


class MissingExtraError(AnalysisError):
    """An optional part is not installed; the message holds the command that installs it."""

    exit_code = 7


class WeightsError(AnalysisError):
    """Recogniser weights are absent, damaged, or not what they claim to be."""

    exit_code = 7
