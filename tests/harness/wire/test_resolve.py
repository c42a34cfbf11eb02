"""From names to addresses: what needs no look-up, and look-ups that fail."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from harness.wire.connection import Address
from harness.wire.resolve import Resolver
from tests.builders.wire import PlainAdapter, say


def _resolved(host: str, lookup: Any = None, *, is_cached: bool = True) -> Any:
    """What a look-up told, and what the resolver knows afterwards."""

    async def main() -> tuple[Any, Sequence[Address] | None]:
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        resolver = Resolver(asyncio.get_running_loop(), is_cached=is_cached, lookup=lookup)
        resolver.resolve(host, 80, told.set_result)
        return await told, resolver.known(host, 80)

    return asyncio.run(main())


async def _two(_host: str, port: int) -> list[Any]:
    rows = [(socket.AF_INET6, ("::1", port, 0, 0)), (socket.AF_INET, ("127.0.0.1", port))]
    return [(family, socket.SOCK_STREAM, 6, "", place) for family, place in rows]


def test_addresses_come_in_the_systems_order():
    """It knows which protocol works here."""
    found, _ = _resolved("name", _two)

    assert ["[::1]:80", "127.0.0.1:80"] == [str(address) for address in found]


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_name_is_kept_for_warm_connections_alone(is_cached: bool):
    """A cold run pays for its look-ups."""
    found, known = _resolved("name", _two, is_cached=is_cached)

    assert (found if is_cached else None) == known


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_a_literal_address_needs_no_look_up(host: str, family: int):
    """Of either family."""
    resolver = Resolver(None, is_cached=False)  # type: ignore[arg-type]

    assert [family] == [address.family for address in resolver.known(host, 80) or ()]


def test_an_address_with_an_interface_is_the_systems_to_read():
    """`fe80::1%eth0` means nothing without the number of the interface."""
    assert Resolver(None, is_cached=False).known("fe80::1%lo", 80) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 64, "bücher..de"])
def test_a_name_that_cannot_be_asked_for_is_an_answer(host: str):
    """Not an exception in a task that nobody looks at, while the request waits."""
    found, _ = _resolved(host)

    assert isinstance(found, socket.gaierror)


def test_such_a_name_is_a_connect_error_of_the_request():
    """At once, with its place."""
    record = say(PlainAdapter("http://a..b:80")).record

    assert ("connect_error", "dns") == (record.transport_outcome.value, record.error_kind)
    assert "cannot connect to a..b:80" in (record.error_text or "")
