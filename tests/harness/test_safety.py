"""Nobody else's service is harmed by carelessness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.errors import AuthorizationError
from harness.prompts import load_prompts
from harness.records import TransportOutcome
from harness.safety import Estimate, StopRule, authorize, estimate_load, is_public_host
from harness.scenario_sections import Authorization
from harness.schedule import build_schedule
from tests.builders.runs import record, scenario


def _resolver(*addresses: str):
    def resolve(host: str) -> Sequence[str]:
        return addresses

    return resolve


def _estimate(**fields: Any) -> Estimate:
    values: dict[str, Any] = {
        "host": "api.example.com",
        "is_public": True,
        "num_points": 1,
        "num_requests": 50,
        "num_characters": 1_000,
        "max_rate_rps": 1.0,
        "duration_s": 60.0,
    }
    return Estimate(**{**values, **fields})


def _consent(**fields: Any) -> Authorization:
    values = {
        "host": "api.example.com",
        "contact": "me@example.com",
        "max_rps": 10.0,
        "max_requests": 1_000,
    }
    return Authorization(**{**values, **fields})


# -- which hosts are public ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "voice.localhost",
        "127.0.0.1",
        "127.8.9.1",
        "::1",
        "[::1]",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.1.1",
        "fd00::1",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "0.0.0.0",
    ],
)
def test_own_and_private_addresses_are_free(host: str):
    """Loopback, private networks, link-local and unique local addresses; no name is looked up."""

    def no_lookup(name: str) -> Sequence[str]:
        raise AssertionError(f"looked up {name}")

    assert not is_public_host(host, resolve=no_lookup)


@pytest.mark.parametrize("host", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8"])
def test_global_addresses_are_public(host: str):
    """Also where an IPv4 address is written as IPv6."""
    assert is_public_host(host)


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["10.0.0.5"], False),
        (["10.0.0.5", "fd00::2"], False),
        (["93.184.215.14"], True),
        (["10.0.0.5", "93.184.215.14"], True),
        ([], True),
    ],
)
def test_a_name_is_as_public_as_its_most_public_address(addresses: list[str], expected: bool):
    """A name without any address is not assumed to be harmless."""
    assert expected is is_public_host("tts.example.com", resolve=_resolver(*addresses))


# -- consent ---------------------------------------------------------------------------------------


def test_a_public_host_within_the_free_allowance_needs_no_consent():
    """50 requests at 1 a second go through."""
    authorize([_estimate()], None)


@pytest.mark.parametrize("fields", [{"num_requests": 51}, {"max_rate_rps": 1.01}])
def test_a_public_host_beyond_it_is_refused(fields: dict[str, Any]):
    """The message has the size of the run, what is free, and the block that allows more."""
    with pytest.raises(AuthorizationError, match=r"public host.*authorization \{host") as refused:
        authorize([_estimate(**fields)], None)
    assert 2 == refused.value.exit_code


def test_a_private_host_is_never_refused():
    """However much is sent."""
    authorize([_estimate(is_public=False, num_requests=10**6, max_rate_rps=1e3)], None)


def test_consent_is_for_its_host_alone():
    """Consent for one host does not cover another."""
    with pytest.raises(AuthorizationError, match=r"other\.example\.com is a public host"):
        authorize([_estimate(host="other.example.com", num_requests=100)], _consent())


def test_consent_lets_a_run_within_its_limits_through():
    """The host's name is compared without regard to case."""
    authorize([_estimate(num_requests=1_000, max_rate_rps=10)], _consent(host="API.example.com"))


@pytest.mark.parametrize(
    ("wanted", "limits", "key"),
    [
        ({"max_rate_rps": 11.0}, {}, "max_rps"),
        ({"num_requests": 1_001}, {}, "max_requests"),
        ({"num_characters": 5_001}, {"max_characters": 5_000}, "max_characters"),
        (
            {"cost": 2.5},
            {"max_cost": 2.0, "price_per_million_characters": 15.0},
            "max_cost",
        ),
    ],
)
def test_a_run_beyond_its_consent_names_the_limit(
    wanted: dict[str, Any], limits: dict[str, Any], key: str
):
    """Each limit of the block holds by itself."""
    with pytest.raises(AuthorizationError, match=f"authorization.{key}"):
        authorize([_estimate(**wanted)], _consent(**limits))


# -- the estimate ----------------------------------------------------------------------------------


def test_the_estimate_adds_up_what_the_plans_send_to_each_host():
    """Two engines on one host are one load; cost follows from the price."""
    given = scenario(
        engines=[{"contract": "a"}, {"contract": "b"}],
        authorization={
            "host": "tts.example.com",
            "contact": "x",
            "max_rps": 9,
            "max_requests": 99,
            "price_per_million_characters": 20.0,
        },
    )
    prompts = load_prompts("voice-agent")
    plans = [
        build_schedule(given, rate_rps=p.rate_rps, seed=p.seed, point_id=p.point_id)
        for p in given.points()
    ]
    [found] = estimate_load(
        given,
        plans,
        prompts=prompts,
        base_urls={p.point_id: "https://TTS.example.com/v1" for p in given.points()},
        resolve=_resolver("93.184.215.14"),
    )

    num = sum(len(plan) for plan in plans)
    characters = sum(len(prompts[a.prompt_id].text) for plan in plans for a in plan)
    assert ("tts.example.com", True, 2, num) == (
        found.host,
        found.is_public,
        found.num_points,
        found.num_requests,
    )
    assert (characters, characters / 1e6 * 20.0) == (found.num_characters, found.cost)
    assert f"{num} requests, {characters} characters, cost about" in found.line()


def test_requests_before_the_load_are_in_the_estimate():
    """One for each engine on the host: requests, characters, and the line that is printed."""
    given = scenario(arrivals={"process": "constant", "rates_rps": [1.0], "seeds": [1]})
    prompts = load_prompts("voice-agent")
    [point] = given.points()
    plan = build_schedule(given, rate_rps=1.0, seed=1, point_id=point.point_id)
    urls = {point.point_id: "http://127.0.0.1:1"}
    ahead = ("http://127.0.0.1:1", "http://127.0.0.1:2", "http://10.0.0.1")
    [without] = estimate_load(given, [plan], prompts=prompts, base_urls=urls)
    [found] = estimate_load(given, [plan], prompts=prompts, base_urls=urls, ahead=ahead)

    assert (0, 2) == (without.num_ahead, found.num_ahead)
    assert 2 == found.num_requests - without.num_requests
    first = prompts[plan.arrivals[0].prompt_id]
    assert 2 * len(first.text) == found.num_characters - without.num_characters
    assert f"{found.num_requests} requests (2 of them before the load)," in found.line()


# -- the rule to stop ------------------------------------------------------------------------------


def _noted(rule: StopRule, *outcomes: tuple[TransportOutcome, int | None]) -> str | None:
    for outcome, status in outcomes:
        rule.note(record(transport_outcome=outcome, http_status=status))
    return rule.reason


REFUSED = (TransportOutcome.REFUSED, 429)
BROKEN = (TransportOutcome.HTTP_ERROR, 500)
OK = (TransportOutcome.OK, 200)


def test_a_share_of_refusals_above_the_limit_stops_the_run():
    """With 6 of the last 10 refused or broken, a limit of one half is passed."""
    rule = StopRule(0.5)

    assert None is _noted(rule, *[OK] * 4, *[REFUSED] * 3, *[BROKEN] * 2)
    assert "6 of the last 10 requests" in (_noted(rule, REFUSED) or "")


def test_a_few_refusals_at_the_start_do_not_stop_the_run():
    """Less than ten requests tell nothing yet."""
    assert None is _noted(StopRule(0.1), *[REFUSED] * 9)


def test_old_refusals_are_forgotten():
    """Only the last 40 requests count."""
    rule = StopRule(0.5)

    assert None is _noted(rule, *[OK] * 20, *[REFUSED] * 15, *[OK] * 40, *[REFUSED] * 19)


@pytest.mark.parametrize(
    "ending",
    [
        (TransportOutcome.CANCELLED, None),
        (TransportOutcome.NOT_SENT, None),
        (TransportOutcome.HTTP_ERROR, 404),
        (TransportOutcome.TIMEOUT, None),
    ],
)
def test_what_is_not_the_server_asking_for_peace_does_not_stop_the_run(
    ending: tuple[TransportOutcome, int | None],
):
    """Our own endings, wrong requests and slow replies are findings."""
    assert None is _noted(StopRule(0.1), *[ending] * 60)


def test_without_a_limit_nothing_stops_the_run():
    """On one's own machine overload is what one came to see."""
    assert None is _noted(StopRule(None), *[REFUSED] * 60)
