"""One warm server for the tests that leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders.checkpoints import Loaded
from tests.builders.reference_server import Served, serving_thread


@pytest.fixture(scope="session")
def server(micro: Loaded) -> Iterator[Served]:
    """Shared: a test that uses it must leave no request behind."""
    with serving_thread(micro.folder) as served:
        yield served
