"""Ask a server who it is and whether it is ready, as its contract says, and read the answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engines.base import EngineInfo, HttpTarget, Probe, ProbeReply
from engines.config_errors import show
from engines.credentials import Credentials
from engines.http_contract import IdentitySpec, LookupSpec, ProbeSpec
from engines.params import address_hint
from engines.pointer import find
from engines.redact import one_line

__all__ = ["build_probe"]

_NO_ROUTE = frozenset({404, 405})
# Statuses under which a server does not show who it is: starting up, or a key is missing.
_CANNOT_TELL = frozenset({401, 403, 429, 500, 502, 503, 504})


def build_probe(
    engine: str, spec: ProbeSpec, *, base_url: str, route: str, credentials: Credentials
) -> Probe:
    """The probe calls at this http(s) address, with a parser for the replies.

    `route` is the path of a speech request, by which an address that holds a part of it is known.
    """
    headers = (
        ("Accept", "application/json"),
        ("Accept-Encoding", "identity"),
        *credentials.headers,
    )
    get = partial(
        HttpTarget,
        method="GET",
        headers=headers,
        secret_headers=frozenset(header for header, _ in credentials.headers),
    )
    return Probe(
        calls={name: get(url=f"{base_url}{path}") for name, path in spec.calls.items()},
        parse=partial(
            _parse,
            engine,
            spec,
            hint=address_hint(base_url, f"{base_url}{route}"),
            secrets=credentials.secrets,
        ),
        metrics=None if spec.metrics is None else get(url=f"{base_url}{spec.metrics}"),
    )


def _parse(
    engine: str,
    probe: ProbeSpec,
    replies: Sequence[ProbeReply],
    *,
    hint: str,
    secrets: tuple[str, ...],
) -> EngineInfo:
    """Read the replies to all calls; what the server did not say stays empty."""
    if not probe.calls:
        return EngineInfo(engine, is_ready=True, reason="readiness cannot be asked")
    by_name = {reply.name: reply for reply in replies}
    documents = {name: _document(reply) for name, reply in by_name.items()}
    is_ready, reason = _readiness(probe, by_name, documents)
    is_match, mismatch = _identity(probe.identity, by_name, documents)
    if hint and all(reply.status in _NO_ROUTE for reply in replies):
        said = ", ".join(f"{reply.status} to {probe.calls[reply.name]}" for reply in replies)
        is_ready, is_match, mismatch = False, False, f"below it, HTTP says {said}; {hint}"
    return EngineInfo(
        contract=engine,
        is_ready=is_ready,
        reason=one_line(reason, secrets=secrets),
        server_name=_first(_look_up(probe.server_name, by_name, documents)),
        server_version=_first(_look_up(probe.server_version, by_name, documents)),
        models=_look_up(probe.models, by_name, documents),
        voices=_look_up(probe.voices, by_name, documents),
        is_match=is_match,
        mismatch=one_line(mismatch, secrets=secrets),
        facts={name: reply.status for name, reply in by_name.items()},
    )


def _readiness(
    probe: ProbeSpec, replies: Mapping[str, ProbeReply], documents: Mapping[str, Any]
) -> tuple[bool, str]:
    rule = probe.ready
    if rule is None:
        answers = [r for r in replies.values() if r.status is not None and r.status < 500]
        if answers:
            best = min(answers, key=lambda answer: answer.status or 0)
            return True, f"{best.name} answered {best.status}; readiness itself cannot be asked"
    asked = rule.call if rule else next(iter(replies), "")
    reply = replies.get(asked)
    if reply is None:
        return False, "no answer"
    path = probe.calls.get(reply.name, reply.name)
    if reply.status is None:
        return False, f"GET {path}: {one_line(reply.body)}"
    if rule is None or not 200 <= reply.status < 300:
        return False, f"GET {path}: HTTP {reply.status} {one_line(reply.body)}"
    if rule.pointer is not None:
        found = find(documents[reply.name], rule.pointer)
        if rule.equals not in found:
            said = show(found[0]) if found else "nothing"
            return False, f"GET {path}: {rule.pointer} is {said}, not {show(rule.equals)}"
    return True, ""


def _identity(
    rules: Sequence[IdentitySpec],
    replies: Mapping[str, ProbeReply],
    documents: Mapping[str, Any],
) -> tuple[bool | None, str]:
    """Whether the right server answers: True, False with the reason, or None: cannot be told."""
    if not rules:
        return None, ""
    for rule in rules:
        reply = replies.get(rule.call)
        if reply is None or reply.status is None or reply.status in _CANNOT_TELL:
            return None, ""
        found = find(documents[rule.call], rule.pointer)
        if rule.equals not in found:
            said = ", ".join(show(value) for value in found[:3]) or f"nothing ({reply.status})"
            wanted = f"{rule.pointer} = {show(rule.equals)}"
            return False, f"another server is there: {rule.call} should say {wanted}, says {said}"
    return True, ""


def _document(reply: ProbeReply) -> Any:
    """The JSON of a good reply, or None."""
    if reply.status is None or not 200 <= reply.status < 300:
        return None
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        return None


def _look_up(
    rule: LookupSpec | None, replies: Mapping[str, ProbeReply], documents: Mapping[str, Any]
) -> tuple[str, ...]:
    if rule is None or rule.call not in replies:
        return ()
    if rule.header is not None:
        wanted = rule.header.lower()
        headers = replies[rule.call].headers
        return tuple(one_line(value) for name, value in headers if name.lower() == wanted)
    assert rule.pointer is not None
    found = find(documents[rule.call], rule.pointer)
    return tuple(one_line(value) for value in found if isinstance(value, str))


def _first(values: tuple[str, ...]) -> str | None:
    return values[0] if values else None
