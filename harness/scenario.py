"""What a run is to do, as one YAML file: strict, resolved once, stored with the results.

Everything that shapes the load is here and nothing that judges it: thresholds live in
`scenarios/gates/`. Unknown keys are errors; each mistake is one line with its path.

Schema history
    1: first version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from engines.http_contract import is_contract_file, load_contract
from harness.config_errors import hint, read_yaml, show, validate
from harness.errors import ScenarioError
from harness.scenario_sections import (
    ArrivalCount,
    ArrivalProcess,
    Arrivals,
    Authorization,
    Behaviour,
    Connections,
    EngineSpec,
    Limits,
    Phases,
    PromptOrder,
    Prompts,
    Recording,
    Retries,
    Section,
    SomeEngines,
    TextPacing,
    Timeouts,
)

__all__ = [
    "ArrivalCount",
    "ArrivalProcess",
    "Point",
    "PromptOrder",
    "Scenario",
    "bundled_scenarios",
    "load_scenario",
    "parse_scenario",
]

SCENARIO_SCHEMA = 1
_BUNDLED_DIR = Path(__file__).resolve().parents[1] / "scenarios"


@dataclass(frozen=True, slots=True)
class Point:
    """One engine at one rate with one seed."""

    point_id: str
    engine: str
    rate_rps: float
    seed: int


class Scenario(Section):
    """A whole run. Build it with `load_scenario`."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    engines: SomeEngines
    arrivals: Arrivals
    phases: Phases = Phases()
    prompts: Prompts = Prompts()
    text_pacing: TextPacing = TextPacing()
    behaviour: Behaviour = Behaviour()
    preflight: bool = True
    timeouts: Timeouts = Timeouts()
    retries: Retries = Retries()
    limits: Limits = Limits()
    connections: Connections = Connections()
    recording: Recording = Recording()
    authorization: Authorization | None = None

    @model_validator(mode="after")
    def _engines_can_be_told_apart(self) -> Scenario:
        labels = [engine.label for engine in self.engines]
        for n, label in enumerate(labels):
            if label in labels[:n]:
                raise ValueError(f"engines[{n}]: a second {label!r}; give each its own `name`")
        return self

    def engine(self, label: str) -> EngineSpec:
        """The engine of that label; KeyError where there is none."""
        for engine in self.engines:
            if engine.label == label:
                return engine
        raise KeyError(label)

    def points(self) -> tuple[Point, ...]:
        """Every engine x rate x seed, in the order in which they are run.

        Engines take turns at each rate, so that a slow drift of the machine meets them alike.
        """
        return tuple(
            Point(f"{engine.label}-r{rate_rps:.12g}-s{seed}", engine.label, rate_rps, seed)
            for seed in self.arrivals.seeds
            for rate_rps in self.arrivals.rates_rps
            for engine in self.engines
        )

    def resolved(self) -> dict[str, Any]:
        """Plain JSON values with every default filled in, under the keys of the file."""
        return self.model_dump(mode="json", by_alias=True)


def bundled_scenarios() -> tuple[str, ...]:
    """Names of the scenarios that come with the package."""
    return tuple(sorted(path.stem for path in _BUNDLED_DIR.glob("*.yaml")))


def load_scenario(
    path: str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
) -> Scenario:
    """Read a scenario file, with values from the command line laid over it.

    Args:
        path: a YAML file, or the name of a bundled scenario. Paths inside it are relative to it.
        overrides: dotted key -> value; `engines[0].params.voice` or `engines.0.params.voice`.
        options: dotted key -> the option that a mistake there is blamed on, not the file.

    Raises:
        ScenarioError: one line with file, path, what was found and what was expected.
    """
    path = _find(path)
    data = read_yaml(path, error=ScenarioError)
    return parse_scenario(
        data, where=str(path), base_dir=path.parent, overrides=overrides, options=options
    )


def parse_scenario(
    data: object,
    *,
    where: str,
    base_dir: Path,
    overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
) -> Scenario:
    """As `load_scenario`, from data that is already read.

    Raises:
        ScenarioError: as there.
        ContractError: a contract file that an engine names is wrong.
    """
    options = options or {}
    if isinstance(data, dict):
        changed = _with_absolute_paths(data, base_dir)
        for key, value in (overrides or {}).items():
            blamed = f"{options.get(key, where)}: {key}"
            changed = _overlaid(changed, _parts(key), value, blamed)
        _refuse_other_schema(changed, where)
        data = _with_contract_names(changed)
    sources = {_as_printed(key): option for key, option in options.items()}
    return validate(Scenario, data, where=where, error=ScenarioError, sources=sources)


def _with_contract_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """An engine given by a file is called as the contract in it, unless it has a name here."""
    copy = dict(data)
    engines = copy.get("engines")
    if isinstance(engines, list):
        copy["engines"] = [
            {**engine, "name": load_contract(engine["contract"], allow_env=True).name}
            if isinstance(engine, dict) and _needs_name(engine)
            else engine
            for engine in engines
        ]
    return copy


def _needs_name(engine: Mapping[str, Any]) -> bool:
    contract = engine.get("contract")
    is_file = isinstance(contract, str) and is_contract_file(contract)
    # That a file is missing is told by whoever needs it.
    return is_file and engine.get("name") is None and Path(str(contract)).is_file()


def _find(name_or_path: str | Path) -> Path:
    path = Path(name_or_path)
    if path.exists():
        return path
    bundled = _BUNDLED_DIR / f"{name_or_path}.yaml"
    if bundled.parent == _BUNDLED_DIR and bundled.is_file():
        return bundled
    known = bundled_scenarios()
    raise ScenarioError(
        f"scenario: {str(name_or_path)!r} is neither a file nor one of "
        f"{', '.join(known)}{hint(name_or_path, known)}"
    )


def _refuse_other_schema(data: Mapping[str, Any], where: str) -> None:
    found = data.get("schema")
    if isinstance(found, int) and not isinstance(found, bool) and found > SCENARIO_SCHEMA:
        raise ScenarioError(
            f"{where}: schema: {found} is newer than {SCENARIO_SCHEMA}, the newest this version "
            "of earwitness can read; install a newer earwitness"
        )


def _parts(key: str) -> list[str]:
    """The steps of `engines[0].params.voice`, the spelling of messages, or `engines.0.params`."""
    return re.sub(r"\[(\d+)\]", r".\1", key).split(".")


def _as_printed(key: str) -> str:
    """A dotted key as messages spell it."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", ".".join(_parts(key)))


def _overlaid(data: object, keys: list[str], value: object, where: str) -> Any:
    """A copy of `data` with one value replaced, deep down; the original is not touched."""
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    if isinstance(data, list):
        if not key.isdecimal() or int(key) >= len(data):
            raise ScenarioError(f"{where}: {key!r} is not one of the {len(data)} items, from 0")
        return [
            _overlaid(item, rest, value, where) if n == int(key) else item
            for n, item in enumerate(data)
        ]
    if data is not None and not isinstance(data, Mapping):
        raise ScenarioError(f"{where}: found {show(data)}, which has no key {key!r}")
    copy = dict(data or {})
    copy[key] = _overlaid(copy.get(key), rest, value, where)
    return copy


def _with_absolute_paths(data: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """Paths in the file, made independent of where the command runs."""
    copy = dict(data)
    for section, keys in _PATH_KEYS.items():
        copy[section] = _absolute_in(copy.get(section), keys, base_dir)
        if copy[section] is None:
            del copy[section]
    engines = copy.get("engines")
    if isinstance(engines, list):
        copy["engines"] = [_absolute_in(engine, ("contract",), base_dir) for engine in engines]
    connections = copy.get("connections")
    if isinstance(connections, dict) and isinstance(connections.get("tls"), dict):
        tls = _absolute_in(connections["tls"], ("ca_file", "cert_file", "key_file"), base_dir)
        copy["connections"] = {**connections, "tls": tls}
    return copy


_PATH_KEYS: Mapping[str, tuple[str, ...]] = {"arrivals": ("trace_file",), "prompts": ("set",)}


def _absolute_in(section: object, keys: tuple[str, ...], base_dir: Path) -> object:
    if not isinstance(section, dict):
        return section
    copy = dict(section)
    for key in keys:
        value = copy.get(key)
        # Only what looks like a file: a bare word is the name of a bundled set or contract.
        if isinstance(value, str) and (Path(value).suffix or "/" in value):
            copy[key] = str((base_dir / Path(value).expanduser()).resolve())
    return copy
