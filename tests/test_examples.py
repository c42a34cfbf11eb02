"""The runs in results/examples are whole: all that was made from them can be made again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analysis.derive import load_derived

EXAMPLES = Path(__file__).resolve().parents[1] / "results" / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/run.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_example_was_measured_by_the_rules_of_today(folder: Path, tmp_path: Path):
    """It has no audio, so its figures cannot follow when a rule changes: it is run again then."""
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy, copy_function=shutil.copy)

    assert load_derived(copy) is not None


def test_there_is_an_example():
    """Else the test above says nothing."""
    assert FOLDERS
