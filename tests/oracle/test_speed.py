"""Speed against the official package at the tiny shape; prints its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_engine.clock import MonotonicClock
from reference_engine.official.speed import SpeedComparison, compare_official
from tests.builders import checkpoints
from tests.oracle.conftest import PYTHON, require_oracle

pytestmark = [pytest.mark.oracle, pytest.mark.bench]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> SpeedComparison:
    require_oracle()
    folder: Path = checkpoints.make(tmp_path_factory.mktemp("speed") / "tiny")
    return compare_official(folder, python=PYTHON, clock=MonotonicClock())


@pytest.mark.parametrize(
    ("sampled", "at_one", "at_eight"), [(False, 8, 35), (True, 6, 25)], ids=["greedy", "sampled"]
)
def test_codec_frames_a_second_against_the_official_package(
    comparison: SpeedComparison, sampled: bool, at_one: float, at_eight: float
):
    """Batch 1 against batch 1, and a batch of eight against the official batch of one."""
    one, eight = (comparison.row(sampled=sampled, batch=batch) for batch in (1, 8))
    across = eight.ours_fps / one.official_fps
    for row in (one, eight):
        print(
            f"{'sampled' if sampled else 'greedy'} batch {row.batch}: ours {row.ours_fps:.1f},"
            f" official {row.official_fps:.1f} codec frames/s, {row.ratio:.1f}x"
        )
    print(f"ours at batch 8 against official at batch 1: {across:.1f}x")

    assert one.ratio >= at_one
    assert across >= at_eight
