"""Keys: where they come from, where alone they may go, and that they are never printed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from engines.errors import ContractError
from engines.http_contract import AuthSpec
from engines.params import is_loopback

__all__ = ["Credentials", "resolve_credentials"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Headers that hold keys, and their bare values, so that neither is ever printed."""

    headers: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()


def resolve_credentials(
    engine: str,
    auth: AuthSpec | None,
    base_url: str,
    *,
    environ: Mapping[str, str],
    key_hosts: Collection[str] = (),
) -> Credentials:
    """The keys that may be sent to this address.

    A key belongs to its contract's hosts. To any other address it is not sent, unless the caller
    names that host in `key_hosts`; and never in the clear over a network.

    Raises:
        ContractError: a needed variable is not set, or a key would travel unencrypted.
    """
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return Credentials()  # no address, no key; the adapter says what is wrong with it
    host = parts.hostname or ""
    if auth is None or host not in (*auth.hosts, *key_hosts):
        return Credentials()
    headers: list[tuple[str, str]] = []
    secrets: list[str] = []
    for header, credential in auth.headers.items():
        key = environ.get(credential.env, "").strip()
        if not key and auth.required:
            raise ContractError(f"{engine}: {host} needs a key: set {credential.env}")
        if not key:
            continue
        if not key.isascii() or not key.isprintable():
            raise ContractError(f"{engine}: {credential.env} holds characters no header may")
        headers.append((header, credential.prefix + key))
        secrets.append(key)
    if secrets and parts.scheme not in ("https", "wss") and not is_loopback(host):
        raise ContractError(
            f"{engine}: base_url: a key would cross the network unencrypted; use https or wss"
        )
    return Credentials(tuple(headers), tuple(secrets))
