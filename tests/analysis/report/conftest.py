"""One finished run and its report, made once for all tests that only read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.report import Report, load_report
from tests.builders.reports import heard_run


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two engines at three rates, with transcripts, failures and hostile texts."""
    return heard_run(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def loaded(run_dir: Path) -> Report:
    """That run, read and put into words."""
    return load_report(run_dir)
