"""One truth server for all tests of this folder that need a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.truth.trial import Transport
from harness.wire.stamping import StampAnchor, kernel_stamps_work
from tests.builders.truth import TruthSite, case_scripts, short_scripts, truth_site


@pytest.fixture(scope="session", autouse=True)
def stamping() -> Iterator[None]:
    """The kernel takes a moment to begin to stamp; no test is to be the first it stamps for."""
    anchor = StampAnchor()
    kernel_stamps_work()
    yield
    anchor.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TruthSite]:
    """Serves short scripts over plain HTTP, and single replies from practice."""
    scripts = {**short_scripts(), **case_scripts()}
    folder = tmp_path_factory.mktemp("truth")
    with truth_site(folder, scripts, names=tuple(short_scripts())) as served:
        yield served


@pytest.fixture(scope="session")
def sealed_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TruthSite]:
    """The same over TLS."""
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("sealed-truth")
    with truth_site(folder, short_scripts(), transport=Transport.HTTPS) as served:
        yield served
