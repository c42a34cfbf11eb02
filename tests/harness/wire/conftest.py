"""Keeps the kernel's receive stamping switched on while these tests run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.wire.stamping import StampAnchor, kernel_stamps_work


@pytest.fixture(scope="session", autouse=True)
def stamping() -> Iterator[None]:
    """The kernel takes a moment to begin; a test must not depend on having been the first."""
    anchor = StampAnchor()
    kernel_stamps_work()
    yield
    anchor.close()
