"""Everything about a run that is fixed before its first byte is sent."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from engines import registry
from engines.base import (
    Adapter,
    ProcessTarget,
    SpeechRequest,
)
from engines.errors import EngineError
from engines.redact import redact_url, secret_values
from harness.errors import AuthorizationError, ScenarioError
from harness.machine_limits import FileLimits, SystemFileLimits, check_descriptors, check_ports
from harness.prompts import Prompt, PromptSet, load_prompts
from harness.safety import Estimate, Resolve, authorize, estimate_load, system_resolve
from harness.scenario import Point, Scenario
from harness.schedule import Schedule, build_schedule

__all__ = [
    "Consent",
    "RunPlan",
    "engines_ahead",
    "plan_points",
    "plan_run",
    "redacted",
    "redactor",
    "user_agent",
]

_HIDDEN = "***"
_MIN_SECRET_CHARS = 4
_SECRET_WORDS = ("key", "token", "secret", "password", "authorization")


@dataclass(frozen=True, slots=True)
class Consent:
    """What the user allows on the command line, beyond what a scenario may ask for by itself.

    key_hosts: further hosts to which a contract's key may be sent.
    allow_contract_env: contracts from outside the package may name environment variables.
    allow_commands: engines that are commands on this machine may be started.
    """

    key_hosts: Collection[str] = ()
    allow_contract_env: bool = False
    allow_commands: bool = False


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Points with their plans, in the order in which they are run, and whom they talk to."""

    scenario: Scenario
    prompts: PromptSet
    adapters: Mapping[str, Adapter]
    points: tuple[Point, ...]
    schedules: tuple[Schedule, ...]
    estimates: tuple[Estimate, ...]
    secrets: frozenset[str] = field(repr=False)
    are_commands_allowed: bool = False

    @property
    def first_prompt(self) -> Prompt:
        """What is said first, of all that will be."""
        return self.prompts[self.schedules[0].arrivals[0].prompt_id]

    @property
    def user_agent(self) -> str:
        """What the run calls itself towards servers."""
        return user_agent(self.scenario)


def plan_run(
    scenario: Scenario,
    *,
    consent: Consent | None = None,
    points: Sequence[Point] | None = None,
    resolve: Resolve = system_resolve,
    limits: FileLimits | None = None,
) -> RunPlan:
    """Load prompts, make adapters, plan every point and ask the safety rules. Sends nothing.

    Args:
        scenario: what to run.
        consent: from the command line.
        points: a part of the scenario's points (a resumed run), perhaps under new ids.
        resolve: name look-up, to tell public hosts from private ones.
        limits: on open files; None: those of this process.

    Raises:
        ScenarioError: prompts, engines or rates are wrong, or this machine would run out of
            files or ports.
        EngineError: a contract is wrong, or its key is missing.
        AuthorizationError: a public host would be loaded without consent, or a command started.
    """
    consent = consent or Consent()
    prompts = load_prompts(scenario.prompts.set, tags=scenario.prompts.tags)
    adapters = {
        engine.label: _adapter(scenario, engine.label, consent) for engine in scenario.engines
    }
    chosen = tuple(scenario.points() if points is None else points)
    schedules = plan_points(scenario, chosen, prompts=prompts)
    check_descriptors(scenario, schedules, limits=limits or SystemFileLimits())
    check_ports(scenario, schedules)
    _refuse_what_cannot_be_said(adapters, scenario, prompts)
    _refuse_commands(adapters, prompts, consent)
    estimates = estimate_load(
        scenario,
        schedules,
        prompts=prompts,
        base_urls={point.point_id: adapters[point.engine].base_url for point in chosen},
        ahead=[adapters[label].base_url for label in engines_ahead(scenario, chosen)],
        resolve=resolve,
    )
    authorize(estimates, scenario.authorization)
    secrets = frozenset(s for adapter in adapters.values() for s in _secrets_of(adapter, prompts))
    secrets |= frozenset(s for engine in scenario.engines for s in _named_secrets(engine.params))
    return RunPlan(
        scenario,
        prompts,
        adapters,
        chosen,
        schedules,
        estimates,
        secrets,
        are_commands_allowed=consent.allow_commands,
    )


def engines_ahead(scenario: Scenario, points: Sequence[Point]) -> tuple[str, ...]:
    """Labels of the engines that are sent one request before the load: those that are loaded."""
    if not scenario.preflight:
        return ()
    return tuple(dict.fromkeys(point.engine for point in points))


def plan_points(
    scenario: Scenario, points: Sequence[Point], *, prompts: PromptSet
) -> tuple[Schedule, ...]:
    """The plan of each of these points.

    Raises:
        ScenarioError: a rate gives no request, or far too many.
    """
    return tuple(
        build_schedule(
            scenario,
            rate_rps=point.rate_rps,
            seed=point.seed,
            point_id=point.point_id,
            prompts=prompts,
        )
        for point in points
    )


def user_agent(scenario: Scenario) -> str:
    """Says what this is and, where a public host is loaded, whom to call about it."""
    contact = scenario.authorization.contact if scenario.authorization else None
    about = f"open-loop TTS benchmark; contact {contact}" if contact else "open-loop TTS benchmark"
    return f"earwitness/{metadata.version('earwitness')} ({about})"


def redactor(secrets: Collection[str]) -> Callable[[str], str]:
    """Hides these values wherever they stand in a text."""
    # Longest first: a key may hold another secret as its beginning.
    ordered = sorted((secret for secret in secrets if secret), key=len, reverse=True)

    def redact(text: str) -> str:
        for secret in ordered:
            text = text.replace(secret, _HIDDEN)
        return text

    return redact


def redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """Plain JSON values with secrets, keys by name, and passwords in URLs hidden."""
    if isinstance(value, str):
        return redact(redact_url(value) if "://" in value else value)
    if isinstance(value, Mapping):
        return {
            key: _HIDDEN
            if _is_secret_name(key) and isinstance(item, str)
            else redacted(item, redact)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(item, redact) for item in value]
    return value


def _is_secret_name(name: object) -> bool:
    words = str(name).lower().replace("-", "_").split("_")
    return any(word in _SECRET_WORDS for word in words) and "file" not in words


def _adapter(scenario: Scenario, label: str, consent: Consent) -> Adapter:
    engine = scenario.engine(label)
    return registry.create(
        engine.contract,
        base_url=engine.base_url,
        params=engine.params,
        key_hosts=consent.key_hosts,
        allow_env=consent.allow_contract_env,
    )


def _refuse_what_cannot_be_said(
    adapters: Mapping[str, Adapter], scenario: Scenario, prompts: PromptSet
) -> None:
    """A prompt that a contract cannot carry is a mistake now, not a failed request later."""
    is_incremental = scenario.text_pacing.mode.value != "whole"
    for label, adapter in adapters.items():
        for prompt in prompts.prompts:
            request = SpeechRequest("check", prompt.text, is_incremental=is_incremental)
            try:
                adapter.open(request)
            except EngineError as fault:
                raise ScenarioError(f"engine {label}: prompt {prompt.id!r}: {fault}") from None


def _refuse_commands(adapters: Mapping[str, Adapter], prompts: PromptSet, consent: Consent) -> None:
    """A scenario may name a command; that it is started is for the user alone to say."""
    for label, adapter in adapters.items():
        target = adapter.open(SpeechRequest("check", prompts.prompts[0].text)).target
        if isinstance(target, ProcessTarget) and not consent.allow_commands:
            raise AuthorizationError(
                f"engine {label}: would start the command {shlex.join(target.argv)[:200]!r} for"
                " every request; allow it with --allow-commands, or choose another engine"
            )


def _named_secrets(params: Mapping[str, Any]) -> Iterator[str]:
    """Values of parameters whose names say what they are: a server may echo them anywhere."""
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _named_secrets(value)
        # A shorter one would hide parts of innocent words.
        elif isinstance(value, str) and len(value) >= _MIN_SECRET_CHARS and _is_secret_name(name):
            yield value


def _secrets_of(adapter: Adapter, prompts: PromptSet) -> set[str]:
    """Values that the adapter sends and nobody may see, for any prompt the same."""
    return set(secret_values(adapter.open(SpeechRequest("check", prompts.prompts[0].text)).target))
