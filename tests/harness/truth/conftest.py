"""One truth server for all tests of this folder that need a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.truth.trial import Transport
from tests.builders.truth import TruthSite, case_scripts, short_scripts, truth_site


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
