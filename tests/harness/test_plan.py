"""What is fixed before the first byte: adapters, plans, consent, secrets."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import AuthorizationError, ScenarioError
from harness.plan import Consent, RunPlan, plan_run, redacted, redactor, user_agent
from tests.builders.runs import scenario

LOCAL = {"contract": "local", "params": {"argv": ["my-tts", "--raw"], "sample_rate_hz": 24_000}}
PIPER = {"contract": "earwitness-piper", "base_url": "http://127.0.0.1:9"}


def _plan(overrides: dict[str, Any] | None = None, **sections: Any) -> RunPlan:
    sections.setdefault("engines", [PIPER])
    consent = sections.pop("consent", None)
    return plan_run(
        scenario(overrides, **sections), consent=consent, resolve=lambda _host: ["93.184.215.14"]
    )


def test_every_point_has_a_plan_and_an_adapter():
    """In the order in which they are run."""
    plan = _plan({"arrivals.rates_rps": [1, 2], "arrivals.seeds": [1, 2]})

    assert [p.point_id for p in plan.points] == [s.point_id for s in plan.schedules]
    assert 4 == len(plan.points)
    assert {"earwitness-piper"} == set(plan.adapters)


def test_a_text_that_a_contract_cannot_carry_is_refused_now(monkeypatch: pytest.MonkeyPatch):
    """10,000 characters are more than this contract takes; the prompt is named."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(ScenarioError, match=r"engine openai: prompt 'hostile-10000-characters'"):
        _plan(
            {"prompts.set": "hostile"},
            engines=[{"contract": "openai", "base_url": "http://127.0.0.1:9"}],
            consent=Consent(key_hosts=("127.0.0.1",)),
        )


def test_text_in_pieces_needs_an_engine_that_takes_them():
    """Found before the run, not as a failure of every request."""
    with pytest.raises(ScenarioError, match="takes whole texts only"):
        _plan(text_pacing={"mode": "words", "rate_per_s": 5.0})


def test_a_key_is_not_sent_to_a_host_it_does_not_belong_to(monkeypatch: pytest.MonkeyPatch):
    """Another host gets it only by the explicit word of the user."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    engines = [{"contract": "openai", "base_url": "http://127.0.0.1:9"}]

    assert frozenset() == _plan(engines=engines).secrets
    assert "k" in _plan(engines=engines, consent=Consent(key_hosts=("127.0.0.1",))).secrets


def test_a_public_host_beyond_its_allowance_is_refused():
    """The planning itself asks the safety rules."""
    with pytest.raises(AuthorizationError, match="public host"):
        _plan(engines=[{**PIPER, "base_url": "http://tts.example.com"}])


def test_the_user_agent_names_the_contact_where_there_is_one():
    """Who is loaded can find out by whom."""
    consent = {"host": "h", "contact": "me@example.com", "max_rps": 1, "max_requests": 1}

    assert "contact me@example.com" in user_agent(scenario(authorization=consent))
    assert "open-loop TTS benchmark" in user_agent(scenario())


def test_secrets_are_hidden_longest_first():
    """A key that begins with another leaves nothing of itself behind."""
    assert "a *** b *** c" == redactor(["key", "key-long"])("a key-long b key c")


def test_values_that_look_like_keys_are_hidden_by_their_names():
    """In a stored scenario or an engine's parameters."""
    value = {
        "api_key": "x",
        "nested": [{"Authorization": "y", "key_file": "/path"}],
        "url": "http://user:word@host/p?token=z",
        "n": 1,
    }

    assert {
        "api_key": "***",
        "nested": [{"Authorization": "***", "key_file": "/path"}],
        "url": "http://host/p?token=***",
        "n": 1,
    } == redacted(value, redactor([]))


def test_a_command_in_a_scenario_is_not_started_without_the_word_of_the_user():
    """The refusal shows the command and names the option."""
    with pytest.raises(AuthorizationError, match=r"'my-tts --raw'.*--allow-commands"):
        _plan(engines=[LOCAL])


def test_an_allowed_command_is_this_machines_own_and_needs_no_other_consent():
    """No public host: any rate and number of requests."""
    plan = _plan(
        {"arrivals.rates_rps": [50]}, engines=[LOCAL], consent=Consent(allow_commands=True)
    )

    assert plan.are_commands_allowed
    assert [("localhost", False)] == [(e.host, e.is_public) for e in plan.estimates]
