"""The walk-through of engines/README.md is true: one YAML and one fixture make an engine."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from engines import http_contract, registry
from engines.base import Audio, Done, Headers, Message, Send, SpeechRequest
from engines.errors import ContractError
from tests.engines.canned import load_fixture
from tests.engines.contract_suite import CHECKS

README = Path(http_contract.__file__).parent / "README.md"


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    """The two files of the walk-through, as a reader would write them."""
    text = README.read_text()
    blocks = re.findall(r"^`(\S+\.yaml)`[^\n]*:\n\n```yaml\n(.*?)^```", text, re.M | re.S)
    assert ["engines/contracts/acme.yaml", "tests/engines/fixtures/acme.yaml"] == [
        name for name, _ in blocks
    ]
    for name, content in blocks:
        (tmp_path / name.replace("/", "_")).write_text(content)
    return tmp_path


def test_the_walk_through_makes_an_engine_that_passes_the_whole_suite(acme: Path):
    """Every check of the contract suite holds for the engine of the README, without Python."""
    fixture = load_fixture(
        acme / "tests_engines_fixtures_acme.yaml",
        contract=str(acme / "engines_contracts_acme.yaml"),
    )
    for check in CHECKS:
        check(fixture)


def test_a_contract_file_is_an_engine_wherever_a_name_is(acme: Path):
    """`create` takes the path; the promise follows the parameter."""
    path = str(acme / "engines_contracts_acme.yaml")
    adapter = registry.create(path, params={"format": "wav"})

    assert "acme" == adapter.name
    assert b'"format":"wav"' in adapter.open(SpeechRequest("r", "Hi.")).start()[0].data


@pytest.fixture
def acme_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the walk-through as pip would leave it: importable, entry points beside it."""
    text = README.read_text()
    files = dict(re.findall(r"^`(\S+)`:\n\n```(?:toml|python)\n(.*?)^```", text, re.M | re.S))
    project = tomllib.loads(files["pyproject.toml"])["project"]
    [(group, points)] = project["entry-points"].items()
    info = tmp_path / f"acme_speech-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {place}" for name, place in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
    (tmp_path / "acme_speech.py").write_text(files["acme_speech.py"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_speech", raising=False)


@pytest.mark.usefixtures("acme_package")
def test_the_package_of_the_walk_through_is_an_engine_with_its_key():
    """Found by its entry point, sent the key of its variable, spoken with to the end."""
    adapter = registry.create("acme-live", environ={"ACME_LIVE_KEY": "s3cret"})
    exchange = adapter.open(SpeechRequest("r", "Hi."))

    assert "acme-live" in registry.names()
    assert "Acme live speech" == registry.card("acme-live").title
    assert "wss://speech.acme.example/live" == exchange.target.url
    assert ("Authorization", "Bearer s3cret") in exchange.target.headers
    says = [Send('{"say":"Hi.","speaker":"anna"}'), Send('{"end":true}', ends_text=True)]
    assert says == exchange.feed(Headers(101))
    assert Audio(b"12") == exchange.feed(Message(b"12"))[-1]
    assert [Done()] == exchange.feed(Message('{"done": true}'))


@pytest.mark.usefixtures("acme_package")
def test_a_key_that_a_package_needs_and_lacks_is_named():
    """Without the variable it is one line, before anything is sent."""
    with pytest.raises(ContractError, match="needs a key: set ACME_LIVE_KEY"):
        registry.create("acme-live", environ={})


def test_every_key_of_a_contract_is_documented():
    """A key that the README does not name is a key nobody will find."""
    section = README.read_text().split("## A contract, key by key")[1].split("\n## ")[0]
    models = [
        model
        for model in vars(http_contract).values()
        if isinstance(model, type)
        and issubclass(model, BaseModel)
        and model.__module__ == http_contract.__name__
        and not model.__name__.startswith("_")
    ]
    missing = {
        key
        for model in models
        for name, info in model.model_fields.items()
        if not re.search(rf"\b{re.escape(key := str(info.validation_alias or name))}\b", section)
    }

    assert set() == missing
