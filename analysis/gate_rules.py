"""The YAML of a gate: which figures must hold, absolutely or against a base.

Schema history
    1: first version.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from analysis.errors import RulesError
from analysis.metrics import PointMetric, RequestMetric, registry
from analysis.number_words import number, quantity
from harness.config_errors import hint, read_yaml, validate

__all__ = [
    "Evidence",
    "GateRules",
    "IfUnmeasured",
    "Requirements",
    "Rule",
    "Scope",
    "bundled_gates",
    "load_gate",
]

_GATES_DIR = Path(__file__).resolve().parents[1] / "scenarios" / "gates"
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# Point metrics whose per-request hits are known, so that a difference has an interval.
PAIRED_SHARES = ("underrun_rate", "failure_rate")
# What "no regression" must rule out where a rule does not say: of a percentile a rise by a quarter,
# of a share one by five percentage points.
_MUST_DETECT_PERCENT = 25.0
_MUST_DETECT_SHARE = 0.05


class Evidence(StrEnum):
    """What a verdict needs: the figure alone, or its whole 95 % interval on one side."""

    VALUE = "value"
    INTERVAL = "interval"


class IfUnmeasured(StrEnum):
    """What a figure that was not measured means."""

    INCONCLUSIVE = "inconclusive"
    SKIP = "skip"


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Scope(_Part):
    """Which points are judged: an engine, rates up to a limit. None takes all."""

    engine: str | None = None
    max_rate_rps: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Requirements(_Part):
    """What every judged point must be. Invalid points never pass."""

    verdict: Literal["valid", "suspect"] = "suspect"
    load: Literal["sustained", "any"] = "sustained"


class Rule(_Part):
    """One limit. Absolute: `max` or `min`. Against a base: `max_increase` or `max_decrease` in the
    metric's unit, or `max_increase_percent` of the base's figure.

    A pass against a base says that nothing worse than `must_detect` (in the metric's unit) or
    `must_detect_percent` (of the base's figure) could have stayed unseen; without either, 25 % for
    a percentile and 0.05 for a share.
    """

    metric: str
    statistic: Literal["p50", "p95", "p99"] | None = None
    max: _Finite | None = None
    min: _Finite | None = None
    max_increase: _NotNegative | None = None
    max_decrease: _NotNegative | None = None
    max_increase_percent: _NotNegative | None = None
    must_detect: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    must_detect_percent: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    evidence: Evidence = Evidence.INTERVAL
    if_unmeasured: IfUnmeasured = IfUnmeasured.INCONCLUSIVE

    @property
    def is_regression(self) -> bool:
        """Whether it needs a base."""
        limits = (self.max_increase, self.max_decrease, self.max_increase_percent)
        return any(limit is not None for limit in limits)

    @property
    def percent(self) -> int | None:
        """50, 95 or 99; None for a figure of a whole point."""
        return None if self.statistic is None else int(self.statistic[1:])

    def allowed_change(self, base_value: float) -> float:
        """How much worse than the base may be, in the metric's unit."""
        if self.max_increase_percent is not None:
            return self.max_increase_percent / 100 * abs(base_value)
        limit = self.max_increase if self.max_increase is not None else self.max_decrease
        assert limit is not None
        return limit

    def unseen_change(self, base_value: float) -> float:
        """How much worse may stay unseen and the rule still pass; at least what is allowed."""
        if self.must_detect is not None:
            unseen = self.must_detect
        elif self.percent is None:
            unseen = _MUST_DETECT_SHARE
        else:
            unseen = (self.must_detect_percent or _MUST_DETECT_PERCENT) / 100 * abs(base_value)
        return max(unseen, self.allowed_change(base_value))

    @model_validator(mode="after")
    def _is_a_metric(self) -> Rule:
        known = registry()
        declared = known.get(self.metric)
        if declared is None:
            raise ValueError(
                f"metric {self.metric!r} is not known{hint(self.metric, known)}; METRICS.md lists"
                " them all"
            )
        if isinstance(declared, RequestMetric) and self.statistic is None:
            raise ValueError(f"metric {self.metric} needs a statistic: p50, p95 or p99")
        if isinstance(declared, PointMetric) and self.statistic is not None:
            raise ValueError(f"metric {self.metric} is one figure a point and has no statistic")
        return self

    @model_validator(mode="after")
    def _has_one_limit(self) -> Rule:
        limits = (self.max, self.min, self.max_increase, self.max_decrease,
                  self.max_increase_percent)  # fmt: skip
        if sum(limit is not None for limit in limits) != 1:
            raise ValueError(
                "a rule needs exactly one of max, min, max_increase, max_decrease,"
                " max_increase_percent"
            )
        if self.is_regression and self.statistic is None and self.metric not in PAIRED_SHARES:
            raise ValueError(
                f"metric {self.metric} cannot be held against a base; of figures of a whole point"
                f" only {', '.join(PAIRED_SHARES)} can"
            )
        return self

    @model_validator(mode="after")
    def _says_once_what_it_must_detect(self) -> Rule:
        if self.must_detect is None and self.must_detect_percent is None:
            return self
        if not self.is_regression:
            raise ValueError("must_detect is for rules against a base")
        if self.must_detect is not None and self.must_detect_percent is not None:
            raise ValueError("a rule takes must_detect or must_detect_percent, not both")
        if self.must_detect_percent is not None and self.statistic is None:
            raise ValueError(
                f"must_detect_percent is of the base's figure, and a {self.metric} of the base may"
                " be 0; say must_detect: 0.05 for five percentage points"
            )
        return self

    def describe(self) -> str:
        """The rule in one line."""
        name = f"{self.statistic} {self.metric}" if self.statistic else self.metric
        for limit, words in (
            (self.max, "at most {}"),
            (self.min, "at least {}"),
            (self.max_increase, "no more than {} above the base"),
            (self.max_decrease, "no more than {} below the base"),
        ):
            if limit is not None:
                return f"{name} {words.format(quantity(limit, self.unit))}"
        return f"{name} no more than {number(self.max_increase_percent)} % above the base"

    @property
    def unit(self) -> str:
        """The metric's."""
        return registry()[self.metric].unit


class GateRules(_Part):
    """A whole gate."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    scope: Scope = Scope()
    require: Requirements = Requirements()
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]

    @property
    def needs_base(self) -> bool:
        """Whether any rule is against a base."""
        return any(rule.is_regression for rule in self.rules)


def bundled_gates() -> tuple[str, ...]:
    """Names of the gates that come with the package."""
    return tuple(sorted(path.stem for path in _GATES_DIR.glob("*.yaml")))


def load_gate(name_or_path: str | Path) -> GateRules:
    """Read a gate: a file, or the name of one that comes with the package.

    Raises:
        RulesError: one line with file, key, what was found and what was expected.
    """
    path = Path(name_or_path)
    if not path.exists():
        path = _GATES_DIR / f"{name_or_path}.yaml"
        if not path.is_file() or path.parent != _GATES_DIR:
            known = bundled_gates()
            raise RulesError(
                f"rules: {str(name_or_path)!r} is neither a file nor one of"
                f" {', '.join(known)}{hint(name_or_path, known)}"
            )
    return validate(GateRules, read_yaml(path, error=RulesError), where=str(path), error=RulesError)
