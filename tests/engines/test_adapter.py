"""What adapters in code share, on one that has nothing of its own."""

from __future__ import annotations

import pytest

from engines.adapter import CodedAdapter
from engines.base import Capabilities, SpeechRequest
from engines.card import EngineCard
from engines.errors import ContractError
from engines.http_contract import FieldSpec

FIELDS = {"voice": FieldSpec(source="voice", default="anna"), "style": FieldSpec()}


class Plain(CodedAdapter):
    """No usual address, two parameters."""

    @classmethod
    def describe(cls) -> EngineCard:
        capabilities = Capabilities(transport="http", formats=("s16le",), can_cancel=True)
        return EngineCard("plain", "Plain", "", None, capabilities, FIELDS)


@pytest.fixture
def adapter() -> Plain:
    return Plain(base_url="http://127.0.0.1:1/", params={"style": "calm"})


def test_an_engine_without_a_usual_address_needs_one():
    """One line with the engine's name."""
    with pytest.raises(ContractError, match="plain: base_url: is required"):
        Plain()


def test_name_and_capabilities_are_those_of_the_card(adapter: Plain):
    """Said once, in `describe`."""
    assert ("plain", True) == (adapter.name, adapter.capabilities.can_cancel)
    assert "http://127.0.0.1:1" == adapter.base_url


def test_a_request_adds_to_the_scenarios_parameters(adapter: Plain):
    """Its own voice wins over the default, and what it does not say stays."""
    values = adapter.values_of(SpeechRequest("r", "Hello.", voice="ben"))

    assert {"voice": "ben", "style": "calm"} == values


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (SpeechRequest("r", "\ud800"), "lone surrogate"),
        (SpeechRequest("r", "x" * 11), "11 characters is longer than the 10"),
        (SpeechRequest("r", "x", params={"stile": "calm"}), "did you mean 'style'"),
        (SpeechRequest("r", "x", language="de"), "takes no language"),
    ],
)
def test_a_request_that_cannot_be_said_is_one_line(
    adapter: Plain, request_: SpeechRequest, said: str
):
    """Before anything is sent."""
    with pytest.raises(ContractError, match=said):
        adapter.values_of(request_, max_text_chars=10)
