"""Runs that several files of tests judge."""

from __future__ import annotations

import pytest

from analysis.evidence import RunEvidence, load_evidence
from tests.builders.sweeps import gamma_engine, sweep


@pytest.fixture(scope="session")
def steady(tmp_path_factory: pytest.TempPathFactory) -> RunEvidence:
    """An engine of about 30 ms, three seeds of 80 requests."""
    folder = tmp_path_factory.mktemp("steady")
    return load_evidence(sweep(folder, {"tts": gamma_engine(num_requests=80)}, seeds=(1, 2, 3)))


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory) -> RunEvidence:
    """The same with 40 requests of one seed: too few for an interval of p95."""
    folder = tmp_path_factory.mktemp("short")
    return load_evidence(sweep(folder, {"tts": gamma_engine(num_requests=40)}))
