"""What counts as good enough: a service level objective, by default that of a voice agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from analysis.errors import RulesError
from harness.config_errors import read_yaml, validate

__all__ = ["Slo", "load_slo"]


@dataclass(frozen=True, slots=True)
class Slo:
    """When a point counts as good enough. Printed beside every answer that rests on it.

    The defaults are those of a voice agent: half a second is where a pause in a conversation
    begins to be felt as one, and one reply in a hundred may fail or stutter.
    """

    audible_ttfa_p95_ms: float = 500.0
    underrun_rate: float = 0.01
    failure_rate: float = 0.01
    wer: float = 0.10

    def __str__(self) -> str:
        return (
            f"p95 audible TTFA ≤ {self.audible_ttfa_p95_ms:g} ms, underruns ≤"
            f" {100 * self.underrun_rate:g} %, failures ≤ {100 * self.failure_rate:g} %, WER ≤"
            f" {100 * self.wer:g} % where measured, load sustained, not invalid"
        )


_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _SloFile(BaseModel):
    """The YAML of an objective."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    schema_version: Literal[1] = Field(alias="schema")
    audible_ttfa_p95_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 500.0
    underrun_rate: _Share = 0.01
    failure_rate: _Share = 0.01
    wer: _Share = 0.10


def load_slo(path: Path) -> Slo:
    """Read an objective.

    Raises:
        RulesError: one line with file, key, what was found and what was expected.
    """
    found = validate(_SloFile, read_yaml(path, error=RulesError), where=str(path), error=RulesError)
    return Slo(
        audible_ttfa_p95_ms=found.audible_ttfa_p95_ms,
        underrun_rate=found.underrun_rate,
        failure_rate=found.failure_rate,
        wer=found.wer,
    )
