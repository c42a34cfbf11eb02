"""Nobody else's service is harmed by carelessness: consent, an estimate, and a rule to stop.

Loopback and private hosts are free. A public host needs the scenario's `authorization` block;
without it a run may send at most 1 request a second and 50 in all.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from harness.errors import AuthorizationError
from harness.prompts import PromptSet
from harness.records import RequestRecord, TransportOutcome
from harness.scenario import Scenario
from harness.scenario_sections import Authorization
from harness.schedule import Schedule

__all__ = [
    "MAX_FREE_REQUESTS",
    "MAX_FREE_RPS",
    "PUBLIC_MAX_ERROR_SHARE",
    "Estimate",
    "Resolve",
    "StopRule",
    "authorize",
    "estimate_load",
    "is_public_host",
    "system_resolve",
]

MAX_FREE_RPS = 1.0
MAX_FREE_REQUESTS = 50
# Half of the last requests refused or failing is a service that asks to be left alone.
PUBLIC_MAX_ERROR_SHARE = 0.5
_STOP_WINDOW = 40
_MIN_BEFORE_STOP = 10

Resolve = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would send to one host. `cost` is None where the scenario names no price.

    `num_ahead` of the requests are sent before the load, one for each engine there.
    """

    host: str
    is_public: bool
    num_points: int
    num_requests: int
    num_characters: int
    max_rate_rps: float
    duration_s: float
    cost: float | None = None
    num_ahead: int = 0

    def line(self) -> str:
        """One line for a person, before the first send."""
        cost = "" if self.cost is None else f", cost about {self.cost:.2f}"
        kind = "public" if self.is_public else "own or private"
        ahead = f" ({self.num_ahead} of them before the load)" if self.num_ahead else ""
        points = f"{self.num_points} point{'' if self.num_points == 1 else 's'}"
        return (
            f"{self.host} ({kind} host): {self.num_requests} requests{ahead}, "
            f"{self.num_characters} characters{cost}, at up to {self.max_rate_rps:g} a second, "
            f"{points}, about {self.duration_s / 60:.1f} min"
        )


def system_resolve(host: str) -> Sequence[str]:
    """Addresses of a host name by the system's resolver; empty when there are none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(str(address[0]) for *_, address in found)


def is_public_host(host: str, *, resolve: Resolve = system_resolve) -> bool:
    """Whether requests to this host leave the user's own networks.

    A name is public if any of its addresses is, or if it has none: what cannot be told is not
    assumed to be harmless.
    """
    bare = host.strip("[]").rstrip(".").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return False
    literal = _address(bare)
    if literal is not None:
        return _is_public_address(literal)
    addresses = [_address(text) for text in resolve(bare)]
    return not addresses or any(a is None or _is_public_address(a) for a in addresses)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _is_public_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_global


def estimate_load(
    scenario: Scenario,
    schedules: Sequence[Schedule],
    *,
    prompts: PromptSet,
    base_urls: Mapping[str, str],
    ahead: Collection[str] = (),
    resolve: Resolve = system_resolve,
) -> tuple[Estimate, ...]:
    """What a run of the planned points would send, host by host.

    Args:
        scenario: for phases and price.
        schedules: the plans, one a point.
        prompts: the texts.
        base_urls: point id -> address of its engine.
        ahead: address of every engine that is sent one request before the load.
        resolve: name look-up, to tell public hosts from private ones.
    """
    consent = scenario.authorization
    price = None if consent is None else consent.price_per_million_characters
    point_s = scenario.phases.warmup_s + scenario.phases.measure_s + scenario.phases.drain_s
    by_host: dict[str, list[Schedule]] = {}
    for plan in schedules:
        host = _host_of(base_urls[plan.point_id])
        by_host.setdefault(host, []).append(plan)
    estimates = []
    for host, plans in by_host.items():
        num_ahead = sum(_host_of(url) == host for url in ahead)
        num_characters = sum(len(prompts[a.prompt_id].text) for plan in plans for a in plan)
        num_characters += num_ahead * len(prompts[schedules[0].arrivals[0].prompt_id].text)
        estimates.append(
            Estimate(
                host=host,
                is_public=is_public_host(host, resolve=resolve),
                num_points=len(plans),
                num_requests=sum(len(plan) for plan in plans) + num_ahead,
                num_characters=num_characters,
                max_rate_rps=max(plan.rate_rps for plan in plans),
                duration_s=len(plans) * point_s,
                cost=None if price is None else num_characters / 1e6 * price,
                num_ahead=num_ahead,
            )
        )
    return tuple(estimates)


def _host_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "process":
        return "localhost"  # a command that this machine starts
    return (parts.hostname or url).lower()


def authorize(estimates: Iterable[Estimate], authorization: Authorization | None) -> None:
    """Let a run go ahead, or say what it would need.

    Raises:
        AuthorizationError: a public host would be loaded beyond what needs no consent, or beyond
            the consent given.
    """
    for estimate in estimates:
        if not estimate.is_public:
            continue
        if authorization is not None and authorization.host.lower() == estimate.host:
            _check_consent(estimate, authorization)
        elif estimate.max_rate_rps > MAX_FREE_RPS or estimate.num_requests > MAX_FREE_REQUESTS:
            raise AuthorizationError(
                f"{estimate.host} is a public host and this run would send "
                f"{estimate.num_requests} requests at up to {estimate.max_rate_rps:g} a second; "
                f"without consent at most {MAX_FREE_REQUESTS} at {MAX_FREE_RPS:g} a second: add "
                "authorization {host, contact, max_rps, max_requests} to the scenario"
            )


def _check_consent(estimate: Estimate, given: Authorization) -> None:
    bounds = [
        ("max_rps", estimate.max_rate_rps, given.max_rps),
        ("max_requests", estimate.num_requests, given.max_requests),
        ("max_characters", estimate.num_characters, given.max_characters),
        ("max_cost", estimate.cost, given.max_cost),
    ]
    for name, wanted, limit in bounds:
        if limit is not None and wanted is not None and wanted > limit:
            raise AuthorizationError(
                f"authorization.{name}: this run would need {wanted:g} at {estimate.host}, "
                f"allowed is {limit:g}; lower the load or raise the limit"
            )


class StopRule:
    """Ends a run when too many of its latest requests are refused or fail in the server.

    Args:
        max_error_share: of the last 40 requests; None never stops.
    """

    def __init__(self, max_error_share: float | None) -> None:
        self._max_error_share = max_error_share
        self._latest: deque[bool] = deque(maxlen=_STOP_WINDOW)
        self.reason: str | None = None

    def note(self, record: RequestRecord) -> None:
        """Take one finished request into account; `reason` is set when it was one too many."""
        if self._max_error_share is None or record.transport_outcome in _NOT_THE_SERVERS_WORD:
            return
        self._latest.append(_is_server_failure(record))
        num_bad = sum(self._latest)
        num = len(self._latest)
        if num >= _MIN_BEFORE_STOP and num_bad > self._max_error_share * num:
            self.reason = (
                f"stopped: {num_bad} of the last {num} requests were refused (429, 503) or failed "
                f"with 5xx, more than limits.max_error_share {self._max_error_share:g}"
            )


# Outcomes that the server had no part in.
_NOT_THE_SERVERS_WORD = frozenset(
    {TransportOutcome.CANCELLED, TransportOutcome.NOT_SENT, TransportOutcome.CLIENT_ERROR}
)


def _is_server_failure(record: RequestRecord) -> bool:
    status = record.http_status
    if record.transport_outcome is TransportOutcome.REFUSED:
        return True
    return status is not None and (status == 429 or status >= 500)
