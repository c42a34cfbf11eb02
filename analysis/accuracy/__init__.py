"""Measured against true: how far each stamp and each reported figure is from what happened.

One side is an ordinary run folder with its derived tables, the other what the truth server's own
arithmetic says. The truth is an interval, because a send lies between two clock readings.

Reading order: `figures` (what is said), `pairs`, then `stamps`, `report`, `playback`, `bars`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from analysis.accuracy.bars import Bar, bars_for
from analysis.accuracy.figures import (
    Accuracy,
    ClientTiming,
    Identity,
    PlaybackAccuracy,
    ReportAccuracy,
    Spread,
    StampAccuracy,
)
from analysis.accuracy.pairs import open_truth_run
from analysis.accuracy.playback import PlaybackCollector
from analysis.accuracy.report import IdentityCollector, ReportCollector
from analysis.accuracy.stamps import StampCollector, TimingCollector
from analysis.stamps import stamp_rule
from harness.records import StampSource
from harness.truth.expected import ExpectedReply

__all__ = [
    "Accuracy",
    "Bar",
    "ClientTiming",
    "Identity",
    "PlaybackAccuracy",
    "ReportAccuracy",
    "Spread",
    "StampAccuracy",
    "bars_for",
    "measure_accuracy",
]


def measure_accuracy(folder: Path, expected: Mapping[int, ExpectedReply]) -> Accuracy:
    """Compare a run with the truth about it.

    Args:
        folder: a closed run folder; it is derived where that has not been done.
        expected: by request number, from the log of the server that it ran against.

    Raises:
        RunFolderError: no readable run folder.
        RunDataError: its clock cannot be laid beside the log, or `derived/` cannot be written.
    """
    run = open_truth_run(folder)
    rule = stamp_rule(run.stored.record.clock)
    is_kernel = rule.source is StampSource.KERNEL
    stamps, timing = StampCollector(rule.conversion_ns), TimingCollector()
    report, playback, identity = ReportCollector(), PlaybackCollector(), IdentityCollector()
    for pair in run.pairs(expected):
        stamps.add(pair, is_kernel=is_kernel)
        timing.add(pair, is_kernel=is_kernel)
        report.add(pair)
        playback.add(pair)
        identity.add(pair)
    return Accuracy(
        stamp_source=rule.source,
        conversion_us=rule.conversion_ns / 1e3,
        stamps=stamps.result(),
        timing=timing.result(),
        report=report.result(),
        playback=playback.result(),
        identity=identity.result(),
    )
