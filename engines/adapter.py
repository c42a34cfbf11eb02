"""What adapters in code share: a card, checked parameters, and the values of one request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from engines.base import Capabilities, EngineCard, SpeechRequest
from engines.http_contract import FieldSpec
from engines.params import check_params, check_text, resolve_values

__all__ = ["CodedAdapter"]


class CodedAdapter(ABC):
    """An engine whose protocol is behaviour; subclasses add `open` and `probe`."""

    def __init__(
        self, base_url: str, fields: Mapping[str, FieldSpec], params: Mapping[str, Any]
    ) -> None:
        """Take a checked address, and check the parameters of a scenario.

        Raises:
            ContractError: one line.
        """
        self._card = self.describe()
        self._fields = fields
        self._params = check_params(self.name, fields, params)
        self.base_url = base_url

    @classmethod
    @abstractmethod
    def describe(cls) -> EngineCard:
        """What is known of the engine without talking to it."""

    @property
    def name(self) -> str:
        """As in the registry."""
        return self._card.name

    @property
    def capabilities(self) -> Capabilities:
        """What this way of talking to the engine can do."""
        return self._card.capabilities

    def values_of(
        self, request: SpeechRequest, *, max_text_chars: int | None = None
    ) -> dict[str, Any]:
        """The value of every parameter for one request.

        Raises:
            ContractError: the text is none or too long, or a parameter is wrong.
        """
        check_text(self.name, request.text, max_chars=max_text_chars)
        params = {**self._params, **check_params(self.name, self._fields, request.params)}
        return resolve_values(self.name, self._fields, params, request)
