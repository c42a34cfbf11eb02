"""From command-line options to a scenario: every value passes through the scenario's own checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.config_errors import hint, load_yaml
from harness.errors import ScenarioError
from harness.scenario import Scenario, bundled_scenarios, load_scenario

__all__ = ["Choices", "choose_scenario", "named_values", "options_of", "overrides_of"]

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Choices:
    """What was typed, unchecked. `assignments` and `params` are `key=value` words.

    `voice` and `params` are for every engine that is run.
    """

    scenario: str | None = None
    engines: tuple[str, ...] = ()
    base_url: str | None = None
    voice: str | None = None
    params: tuple[str, ...] = ()
    rates: str | None = None
    seeds: str | None = None
    duration_s: float | None = None
    assignments: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was typed at all."""
        return self == Choices()


def choose_scenario(choices: Choices) -> Scenario:
    """The scenario that was named, with the options laid over it.

    Raises:
        ScenarioError: none was named, or something in it or in an option is wrong.
    """
    if choices.scenario is None:
        raise ScenarioError(
            f"scenario: none given; name a file or one of {', '.join(bundled_scenarios())}"
        )
    overrides, options = overrides_of(choices), options_of(choices)
    scenario = load_scenario(choices.scenario, overrides=overrides, options=options)
    engines = _engines(scenario, choices)
    if engines is None:
        return scenario
    # The engines go first: a key given by --set is then one of theirs, not lost under them.
    return load_scenario(
        choices.scenario, overrides={"engines": engines, **overrides}, options=options
    )


def overrides_of(choices: Choices) -> dict[str, Any]:
    """Dotted key -> value, of all options but the engines.

    Raises:
        ScenarioError: an option cannot be read.
    """
    overrides = named_values(choices.assignments, "--set")
    if choices.rates is not None:
        overrides["arrivals.rates_rps"] = _numbers(choices.rates, float, "--rates")
    if choices.seeds is not None:
        overrides["arrivals.seeds"] = _numbers(choices.seeds, int, "--seeds")
    if choices.duration_s is not None:
        overrides["phases.measure_s"] = choices.duration_s
    return overrides


def named_values(words: Iterable[str], option: str) -> dict[str, Any]:
    """`key=value` words of an option, each value as YAML would read it, so of a scenario's types.

    Raises:
        ScenarioError: a word is none such, or its value no YAML.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key:
            raise ScenarioError(f"{option}: found {word!r}, expected key=value")
        found[key] = load_yaml(text, where=f"{option} {key}", error=ScenarioError)
    return found


def options_of(choices: Choices) -> dict[str, str]:
    """Dotted key -> the option that gave it: what a mistake there is to be blamed on."""
    options = {word.partition("=")[0]: "--set" for word in choices.assignments}
    given = (
        ("arrivals.rates_rps", "--rates", choices.rates),
        ("arrivals.seeds", "--seeds", choices.seeds),
        ("phases.measure_s", "--duration", choices.duration_s),
        ("engines[0].base_url", "--base-url", choices.base_url),
    )
    return options | {key: option for key, option, value in given if value is not None}


def _numbers(text: str, kind: Callable[[str], Number], option: str) -> list[Number]:
    numbers = []
    for word in text.split(","):
        try:
            numbers.append(kind(word))
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise ScenarioError(
                f"{option}: {word!r} is not {what}; expected a list such as 1,2,4"
            ) from None
    return numbers


def _engines(scenario: Scenario, choices: Choices) -> list[dict[str, Any]] | None:
    """The engines to run instead of the scenario's; None leaves those."""
    params = named_values(choices.params, "--param")
    if choices.voice is not None:
        params["voice"] = choices.voice
    if not choices.engines and choices.base_url is None and not params:
        return None
    chosen = [_engine(scenario, name) for name in choices.engines] or [
        engine.model_dump() for engine in scenario.engines
    ]
    if choices.base_url is not None:
        if len(chosen) > 1:
            names = ", ".join(str(e["name"] or e["contract"]) for e in chosen)
            raise ScenarioError(f"--base-url: needs one engine, found {names}; add --engine")
        chosen[0]["base_url"] = choices.base_url
    for engine in chosen:
        engine["params"] = {**engine.get("params", {}), **params}
    return chosen


def _engine(scenario: Scenario, name: str) -> dict[str, Any]:
    """An engine of the scenario by its label, else a contract by its name or file."""
    for engine in scenario.engines:
        if engine.label == name:
            return engine.model_dump()
    from engines import registry
    from engines.http_contract import is_contract_file

    labels = [engine.label for engine in scenario.engines]
    if name not in registry.names() and not is_contract_file(name):
        known = [*labels, *registry.names()]
        raise ScenarioError(
            f"--engine: {name!r} is neither an engine of the scenario ({', '.join(labels)}) nor a "
            f"known contract ({', '.join(registry.names())}){hint(name, known)}"
        )
    return {"contract": name}
