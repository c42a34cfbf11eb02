"""A contract file that makes no sense is refused, in one line that says where."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.errors import ContractError, UnknownEngineError
from engines.http_contract import load_contract

_GOOD: dict[str, Any] = {
    "schema": 1,
    "name": "acme",
    "title": "Acme",
    "source": "its page",
    "request": {"path": "/say", "body": {"text": {"from": "text"}}},
    "response": {
        "accept": {"audio/pcm": {"sample_format": "s16le"}},
        "expect": {"sample_format": "s16le", "sample_rate_hz": 16000, "channels": 1},
    },
}


def _load(tmp_path: Path, changes: dict[str, Any], *, allow_env: bool = False) -> Any:
    document = copy.deepcopy(_GOOD)
    for path, value in changes.items():
        place = document
        *outer, last = path.split(".")
        for step in outer:
            place = place.setdefault(step, {})
        place[last] = value
    file = tmp_path / "acme.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_contract(file, allow_env=allow_env)


def test_a_small_contract_is_enough(tmp_path: Path):
    """Address, probe and authorisation are optional."""
    assert "acme" == _load(tmp_path, {}).name


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"respons": {}}, r"acme.yaml: respons: unknown key \(did you mean 'response'\?\)"),
        ({"schema": 2}, r"acme.yaml: schema: 2 is not one of 1"),
        ({"name": "Acme Inc"}, r"acme.yaml: name: "),
        ({"request.body": {}}, r"acme.yaml: request: exactly one field .* `from: text`"),
        ({"request.path": "say"}, r"acme.yaml: request.path: "),
        ({"request.path": "/v/{id}"}, r"request: path names {id}, which is not among the settings"),
        ({"request.encoding": "none"}, r"request: `encoding: none` sends no body"),
        (
            {"request.body.rate": {"type": "integr"}},
            r"request.body.rate.type: 'integr' is not one of .*did you mean 'integer'",
        ),
        (
            {"request.body.stream": {"value": True, "default": False}},
            r"request.body.stream: a constant takes `value`",
        ),
        (
            {"request.body.x": {"required": True, "default": 1}},
            r"request.body.x: a required field has no default",
        ),
        ({"response.accept": {}}, r"response.accept: {}: dictionary should have at least 1"),
        (
            {"response.accept": {"Audio/PCM": {"sample_format": "s16le"}}},
            r"response: accept: 'Audio/PCM' is not a lower-case type",
        ),
        (
            {"response.expect": {"sample_format": "s16le", "channels": 1}},
            r"response.expect: headerless audio needs a sample rate",
        ),
        (
            {"response.expect": {"sample_format": "s16", "channels": 1}},
            r"response.expect.sample_format: 's16' is not one of .*did you mean 's16le'",
        ),
        (
            {"response.assume": {"sample_format": "wav"}},
            r"response: give one of `expect`, `expect_by` and `assume`",
        ),
        (
            {"response.expect.sample_rate_param": "rate"},
            r"the whole file: sample_rate_param: 'rate' is not a parameter",
        ),
        ({"response.errors": ["error"]}, r"response: 'error' is not a JSON pointer"),
        (
            {"probe": {"calls": {"health": "/h"}, "ready": {"call": "helth"}}},
            r"probe: 'helth' is not among the calls \(did you mean 'health'\?\)",
        ),
        (
            {"probe": {"calls": {"m": "/m"}, "models": {"call": "m"}}},
            r"probe.models: give either `pointer` or `header`",
        ),
    ],
)
def test_a_senseless_contract_is_refused(tmp_path: Path, changes: dict[str, Any], line: str):
    """The line says which key and what is wrong with it."""
    with pytest.raises(ContractError, match=line) as caught:
        _load(tmp_path, changes)
    assert 1 == len(str(caught.value).splitlines())


def test_a_promise_by_parameter_needs_an_entry_for_the_default(tmp_path: Path):
    """Otherwise the plainest use of the contract would fail."""
    changes = {
        "request.body.fmt": {"default": "mp3"},
        "response.expect": None,
        "response.expect_by": {"param": "fmt", "formats": {"wav": {"sample_format": "wav"}}},
    }
    with pytest.raises(ContractError, match="the default value has no format"):
        _load(tmp_path, changes)


def test_a_foreign_contract_may_not_name_environment_variables(tmp_path: Path):
    """A file from elsewhere would decide where a key goes; it needs consent."""
    auth = {"hosts": ["evil.example"], "headers": {"X-Key": {"env": "OPENAI_API_KEY"}}}
    with pytest.raises(ContractError, match="may not read environment variables"):
        _load(tmp_path, {"auth": auth})

    assert auth["hosts"] == list(_load(tmp_path, {"auth": auth}, allow_env=True).auth.hosts)


def test_an_unknown_contract_name_lists_the_known():
    """With the closest one."""
    with pytest.raises(
        UnknownEngineError, match=r"no contract 'opena' \(did you mean 'openai'\?\)"
    ):
        load_contract("opena")
