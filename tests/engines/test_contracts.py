"""Every contract of the package against its canned exchange."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engines.http_contract import builtin_contracts
from tests.engines.canned import FIXTURES, Fixture, load_fixture
from tests.engines.contract_suite import CHECKS

# `<contract>.yaml`, or `<contract>.<variant>.yaml` for one that answers in several ways.
NAMES = sorted(path.stem for path in FIXTURES.glob("*.yaml"))


def test_every_contract_has_a_canned_exchange():
    """A contract without a fixture is not tested at all."""
    assert set(builtin_contracts()) == {name.partition(".")[0] for name in NAMES}


@pytest.fixture(params=NAMES, scope="module")
def fixture(request: pytest.FixtureRequest) -> Fixture:
    """One contract with one of its canned exchanges."""
    return load_fixture(FIXTURES / f"{request.param}.yaml")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract_holds(check: Callable[[Fixture], None], fixture: Fixture):
    """The named fact is true of this contract."""
    check(fixture)
