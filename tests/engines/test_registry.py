"""Adapters by name: known, unknown, from a file, from a third party."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from engines import registry
from engines.base import Adapter, Capabilities
from engines.errors import ContractError, UnknownEngineError
from engines.fake import FakeAdapter, FakeScript


class Acme(FakeAdapter):
    """A third party's adapter, as an entry point would name it."""

    def __init__(
        self, *, base_url: str | None, params: object, environ: object, key_hosts: object
    ) -> None:
        super().__init__(lambda _: FakeScript(()), name="acme", base_url=base_url or "http://x")
        self.params = params
        self.environ = environ
        self.key_hosts = key_hosts


class Older:
    """One that takes no keys."""

    def __init__(self, *, base_url: str | None, params: object) -> None: ...


def _local(base_url: str | None) -> str:
    """The same scheme on this machine, where no key is needed."""
    scheme = (base_url or "http://").partition("://")[0]
    return f"{scheme}://127.0.0.1:9"


def _offer(monkeypatch: pytest.MonkeyPatch, **offers: str) -> None:
    points = [
        metadata.EntryPoint(name, place, registry.ENTRY_POINT_GROUP)
        for name, place in offers.items()
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: points)


@pytest.mark.parametrize("name", registry.names())
def test_every_known_engine_has_a_card(name: str):
    """Name, title, source, transport and formats are there for `earwitness engines`."""
    card = registry.card(name)

    assert name == card.name
    assert card.title
    assert card.source
    assert card.capabilities.transport
    assert card.capabilities.formats


@pytest.mark.parametrize("name", registry.names())
def test_every_engine_can_be_created(name: str):
    """An adapter of that name comes back and fulfils the contract of adapters."""
    card = registry.card(name)
    adapter = registry.create(name, base_url=_local(card.base_url), environ={})

    assert isinstance(adapter, Adapter)
    assert name == adapter.name
    assert isinstance(adapter.capabilities, Capabilities)


def test_a_wrong_name_lists_the_known_and_the_closest():
    """One line is enough to mend the typo."""
    with pytest.raises(UnknownEngineError) as caught:
        registry.create("naari")

    assert "no engine 'naari' (did you mean 'nari'?); known: " in str(caught.value)
    assert all(name in str(caught.value) for name in registry.names())
    assert 2 == caught.value.exit_code


def test_a_contract_file_that_is_not_there_is_one_line(tmp_path: Path):
    """The path is in the message."""
    with pytest.raises(ContractError, match=r"none\.yaml: cannot be read"):
        registry.create(str(tmp_path / "none.yaml"))


def test_an_entry_point_makes_an_engine(monkeypatch: pytest.MonkeyPatch):
    """A third party's object is called as ours are: address, parameters, keys and their hosts."""
    _offer(monkeypatch, acme=f"{__name__}:Acme")
    adapter = registry.create(
        "acme", base_url="http://there", params={"a": 1}, environ={"K": "v"}, key_hosts=("h",)
    )

    assert "acme" in registry.names()
    assert isinstance(adapter, Acme)
    assert ("http://there", {"a": 1}) == (adapter.base_url, adapter.params)
    assert ({"K": "v"}, ("h",)) == (adapter.environ, adapter.key_hosts)


def test_an_entry_point_that_is_called_otherwise_is_one_line(monkeypatch: pytest.MonkeyPatch):
    """The keywords are named, instead of a TypeError from inside."""
    _offer(monkeypatch, acme=f"{__name__}:Older")
    with pytest.raises(ContractError, match=r"called with base_url, params, environ, key_hosts"):
        registry.create("acme", base_url="http://there")


def test_an_entry_point_may_not_take_a_built_in_name(monkeypatch: pytest.MonkeyPatch):
    """Which of the two would be measured must never be a guess."""
    _offer(monkeypatch, nari="their.nari:Nari")
    with pytest.raises(ContractError, match=r"their.nari:Nari offers an engine 'nari'"):
        registry.names()


def test_an_entry_point_that_cannot_be_imported_is_one_line(monkeypatch: pytest.MonkeyPatch):
    """The missing module is named; the other engines go on working."""
    _offer(monkeypatch, acme="no_such_package.acme:Acme")

    assert "acme" in registry.names()
    with pytest.raises(ContractError, match=r"acme.*cannot be loaded: No module named"):
        registry.create("acme")


def test_the_registry_imports_no_heavy_package():
    """Listing engines must not cost seconds: no audio, array or network package is loaded."""
    code = (
        "import sys; from engines import registry; "
        "[registry.card(name) for name in registry.names()]; "
        "print(sorted({'numpy', 'aiohttp', 'websockets', 'torch', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == found.stdout.strip()
