"""What is known of an engine without talking to it, for lists and for people who choose one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.base import Capabilities
from engines.http_contract import AuthSpec, FieldSpec

__all__ = ["EngineCard"]


@dataclass(frozen=True, slots=True)
class EngineCard:
    """One engine. `base_url` None: no usual address; `auth` None: it takes no key.

    `parameters` are those that a scenario may give, by the names that they have there.
    """

    name: str
    title: str
    source: str
    base_url: str | None
    capabilities: Capabilities
    parameters: Mapping[str, FieldSpec] = field(default_factory=dict)
    auth: AuthSpec | None = None
