"""Find an adapter by name, importing its module only then.

Names come from three places: contracts in the package, adapters in code (the table below), and
third parties, who declare an entry point in the group `earwitness.engines`. Its object is called
as ours are, `factory(base_url=..., params=..., environ=..., key_hosts=...)`, and returns an
`Adapter`.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Collection, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from engines.base import Adapter, Capabilities
from engines.card import EngineCard
from engines.config_errors import hint
from engines.credentials import resolve_credentials
from engines.errors import ContractError, EngineError, UnknownEngineError
from engines.http_contract import (
    HttpContract,
    builtin_contracts,
    is_contract_file,
    load_contract,
)
from engines.http_stream import HttpStreamAdapter

__all__ = ["ENTRY_POINT_GROUP", "card", "create", "names"]

ENTRY_POINT_GROUP = "earwitness.engines"

AdapterFactory = Callable[..., Adapter]

# Adapters whose protocol is behaviour, not data: `module:class`, the class having `describe()`.
_IN_CODE: Mapping[str, str] = MappingProxyType(
    {
        "cartesia-ws": "engines.websocket.cartesia:CartesiaSpeechAdapter",
        "deepgram-ws": "engines.websocket.deepgram:DeepgramSpeechAdapter",
        "elevenlabs-ws": "engines.websocket.elevenlabs:ElevenLabsSpeechAdapter",
        "local": "engines.local:LocalAdapter",
        "minimax-ws": "engines.websocket.minimax:MinimaxSpeechAdapter",
        "nari-ws": "engines.websocket.nari:NariSpeechAdapter",
        "playht-ws": "engines.websocket.playht:PlayhtSpeechAdapter",
        "sglang-omni-ws": "engines.websocket.sglang_omni:SglangOmniSpeechAdapter",
        "vllm-omni-ws": "engines.websocket.vllm_omni:VllmOmniSpeechAdapter",
        "voxserve-text": "engines.voxserve_text:VoxserveTextAdapter",
        "wyoming": "engines.wyoming:WyomingAdapter",
    }
)

# Contracts without a usual address are only looked at, never connected, under this one.
_NO_ADDRESS = "http://127.0.0.1:9"


def names() -> tuple[str, ...]:
    """Every known engine, sorted."""
    return tuple(sorted({*builtin_contracts(), *_IN_CODE, *_entry_points()}))


def create(
    name: str,
    *,
    base_url: str | None = None,
    params: Mapping[str, Any] = MappingProxyType({}),
    environ: Mapping[str, str] | None = None,
    key_hosts: Collection[str] = (),
    allow_env: bool = False,
) -> Adapter:
    """Make the adapter called `name`, or the one that a contract file describes.

    Args:
        name: as in `names()`, or the path of a contract YAML.
        base_url: where the server is; None: the contract's usual address.
        params: engine-specific values of the scenario, checked here.
        environ: where keys are read; None: this process's environment.
        key_hosts: further hosts to which the contract's key may be sent.
        allow_env: lets a contract from outside the package name environment variables.

    Raises:
        UnknownEngineError: no such engine; lists the known ones and the closest.
        ContractError: contract, address, parameters or key are wrong; one line.
    """
    variables = os.environ if environ is None else environ
    if _is_contract(name):
        contract = load_contract(name, allow_env=allow_env)
        credentials = resolve_credentials(
            contract.name,
            contract.auth,
            base_url or contract.base_url or "",
            environ=variables,
            key_hosts=key_hosts,
        )
        return HttpStreamAdapter(contract, base_url, params, credentials=credentials)
    factory = _factory(name)
    given = {"base_url": base_url, "params": params, "environ": variables, "key_hosts": key_hosts}
    _refuse_other_call(name, factory, given)
    return factory(**given)


def card(name: str) -> EngineCard:
    """What is known of an engine without talking to it; errors as `create`."""
    if _is_contract(name):
        contract = load_contract(name, allow_env=True)
        return _contract_card(contract)
    factory = _factory(name)
    describe = getattr(factory, "describe", None)
    if describe is not None:
        return cast(EngineCard, describe())
    note = "third party; it describes itself only once created"
    capabilities = Capabilities(transport="unknown", formats=(), note=note)
    return EngineCard(name, title=name, source="", base_url=None, capabilities=capabilities)


def _contract_card(contract: HttpContract) -> EngineCard:
    adapter = HttpStreamAdapter(contract, contract.base_url or _NO_ADDRESS)
    return EngineCard(
        name=contract.name,
        title=contract.title,
        source=contract.source,
        base_url=contract.base_url,
        capabilities=adapter.capabilities,
        parameters=contract.parameters(),
        auth=contract.auth,
    )


def _is_contract(name: str) -> bool:
    return is_contract_file(name) or name in builtin_contracts()


def _factory(name: str) -> AdapterFactory:
    third_party = _entry_points()
    if name in _IN_CODE:
        return _load(_IN_CODE[name], f"engine {name!r}")
    if name in third_party:
        found = third_party[name]
        return _load(found.value, f"engine {name!r} (entry point {found.value})")
    known = names()
    paths = "" if not Path(name).exists() else "; to use a file, give a path that ends in .yaml"
    raise UnknownEngineError(
        f"no engine {name!r}{hint(name, known)}; known: {', '.join(known)}{paths}"
    )


def _refuse_other_call(name: str, factory: AdapterFactory, given: Mapping[str, Any]) -> None:
    """A third party's mistake, told before it is a `TypeError` from somewhere inside."""
    try:
        inspect.signature(factory).bind(**given)
    except TypeError as fault:
        raise ContractError(
            f"engine {name!r}: an adapter is called with {', '.join(given)} as keywords, and this "
            f"one takes others: {fault}"
        ) from None


def _load(place: str, what: str) -> AdapterFactory:
    module, _, attribute = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for step in attribute.split("."):
            found = getattr(found, step)
    except EngineError:
        raise
    except (ImportError, AttributeError) as fault:
        raise ContractError(f"{what}: cannot be loaded: {fault}") from fault
    return cast(AdapterFactory, found)


def _entry_points() -> dict[str, metadata.EntryPoint]:
    """Third parties' adapters by name; a name already taken is an error, never a silent choice."""
    found: dict[str, metadata.EntryPoint] = {}
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        taken_by = found.get(point.name)
        if taken_by is not None and taken_by.value != point.value:
            raise ContractError(
                f"two packages offer an engine {point.name!r}: {taken_by.value} and {point.value}; "
                "remove one"
            )
        if point.name in _IN_CODE or point.name in builtin_contracts():
            raise ContractError(
                f"{point.value} offers an engine {point.name!r}, which is built in; rename it there"
            )
        found[point.name] = point
    return found
