"""Gates of a rule or two, and replies of which a share is lost."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

from analysis.gate import GateVerdict, RuleVerdict
from analysis.gate_rules import GateRules, load_gate
from engines.outcomes import TransportOutcome
from tests.builders.sweeps import Reply, gamma_engine

__all__ = ["lost", "one_rule", "rules_of", "verdict_of"]


def rules_of(tmp_path: Path, text: str) -> GateRules:
    """The gate of a YAML text less its head."""
    path = tmp_path / "rules.yaml"
    path.write_text("schema: 1\nname: test\n" + textwrap.dedent(text))
    return load_gate(path)


def one_rule(tmp_path: Path, rule: str) -> GateRules:
    """The gate of a single rule, as `metric: wer, max: 0.1`."""
    return rules_of(tmp_path, f"rules:\n  - {{{rule}}}\n")


def verdict_of(found: GateVerdict, word: str) -> RuleVerdict:
    """The one verdict of the rules that hold this word."""
    (verdict,) = {result.verdict for result in found.results if word in result.rule}
    return verdict


def lost(share: int) -> Callable[[float, int], list[Reply]]:
    """An engine that loses every so many-th of 60 requests."""

    def replies(rate: float, seed: int) -> list[Reply]:
        made = gamma_engine(num_requests=60)(rate, seed)
        return [
            Reply(0, outcome=TransportOutcome.TIMEOUT) if i % share == 0 else reply
            for i, reply in enumerate(made)
        ]

    return replies
