"""One truth server for all tests of this folder that need a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders.truth import TruthSite, short_scripts, truth_site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TruthSite]:
    """Serves short scripts over plain HTTP."""
    with truth_site(tmp_path_factory.mktemp("truth"), short_scripts()) as served:
        yield served
