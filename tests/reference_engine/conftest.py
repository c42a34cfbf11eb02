"""Checkpoints of random numbers, made once a session."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.builders import checkpoints
from tests.builders.checkpoints import Loaded


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny matrices run faster on one thread, and do not fight the other tests for the cores."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.make(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Loaded:
    return checkpoints.load(tiny_folder)


@pytest.fixture(scope="session")
def micro_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.make_micro(tmp_path_factory.mktemp("checkpoint") / "micro")


@pytest.fixture(scope="session")
def micro(micro_folder: Path) -> Loaded:
    return checkpoints.load(micro_folder)
