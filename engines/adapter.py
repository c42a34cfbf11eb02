"""What adapters in code share: address, card, checked parameters, and the values of one request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from engines.base import Capabilities, SpeechRequest
from engines.card import EngineCard
from engines.errors import ContractError
from engines.params import check_base_url, check_params, check_text, resolve_values

__all__ = ["CodedAdapter"]


class CodedAdapter(ABC):
    """An engine whose protocol is behaviour; subclasses add `open` and `probe`.

    `SCHEMES` are those that an address may have.
    """

    SCHEMES: ClassVar[tuple[str, ...]] = ("http", "https")

    def __init__(
        self,
        *,
        base_url: str | None = None,
        params: Mapping[str, Any] = MappingProxyType({}),
        environ: Mapping[str, str] = MappingProxyType({}),
        key_hosts: Collection[str] = (),
    ) -> None:
        """Check everything at once; see `engines.registry.create`.

        Keys are looked up in `environ` and bound to `key_hosts` by those who need any.

        Raises:
            ContractError: one line.
        """
        del environ, key_hosts
        self._card = self.describe()
        self.base_url = self.check_address(base_url or self._card.base_url)
        self._params = check_params(self.name, self._card.parameters, params)

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

    def check_address(self, address: str | None) -> str:
        """The given address, or else the usual one, as it is used from now on.

        Raises:
            ContractError: there is neither, or it is none.
        """
        if address is None:
            raise ContractError(f"{self.name}: base_url: is required; this engine has no usual")
        return check_base_url(address, engine=self.name, schemes=self.SCHEMES)

    def values_of(
        self, request: SpeechRequest, *, max_text_chars: int | None = None
    ) -> dict[str, Any]:
        """The value of every parameter for one request.

        Raises:
            ContractError: the text is none or too long, or a parameter is wrong.
        """
        check_text(self.name, request.text, max_chars=max_text_chars)
        params = {**self._params, **check_params(self.name, self._card.parameters, request.params)}
        return resolve_values(self.name, self._card.parameters, params, request)
