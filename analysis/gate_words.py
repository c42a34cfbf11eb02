"""A gate's answer for people and for machines: terminal, Markdown, JSON, JUnit."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

from analysis.evidence import SIMULATED_NOTE
from analysis.gate import GateVerdict, RuleResult, RuleVerdict
from analysis.number_words import quantity
from analysis.stats.beyond import ClusteredShare
from harness.records import RunKind

__all__ = ["gate_json", "gate_junit", "gate_markdown", "gate_text"]

_SIGNS = {
    RuleVerdict.PASS: "pass",
    RuleVerdict.FAIL: "FAIL",
    RuleVerdict.INCONCLUSIVE: "inconclusive",
    RuleVerdict.SKIPPED: "skipped",
}


def gate_text(found: GateVerdict) -> str:
    """For a terminal: the answer, then every rule that is not simply met.

    One that was met against a base says what it could have seen, so it is told as well.
    """
    lines = [f"gate {found.gate}: {_SIGNS[found.verdict]} ({_counts(found)})"]
    if found.is_simulated:
        lines.append(f"  {SIMULATED_NOTE}")
    lines.extend(
        f"  {_SIGNS[result.verdict]}: {_place(result)}: {result.rule}: {_figures(result)}"
        f"{result.reason}"
        for result in found.results
        if result.verdict is not RuleVerdict.PASS or result.base is not None
    )
    lines.extend(f"  note: the base differs: {note}" for note in found.notes)
    return "\n".join(lines) + "\n"


def gate_markdown(found: GateVerdict) -> str:
    """For the summary of a CI step or a pull request."""
    lines = [
        f"## Gate {found.gate}: {_SIGNS[found.verdict]}",
        "",
        *([f"**{SIMULATED_NOTE}**", ""] if found.is_simulated else []),
        "| verdict | engine | rate | rule | figure | why |",
        "|---|---|---|---|---|---|",
    ]
    for result in found.results:
        cells = (
            _SIGNS[result.verdict],
            result.engine,
            f"{result.rate_rps:g}/s",
            result.rule,
            _figures(result).rstrip(", ") or "n/a",
            result.reason,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    if found.notes:
        lines += ["", "The base differs:", "", *(f"- {note}" for note in found.notes)]
    return "\n".join(lines) + "\n"


def gate_json(found: GateVerdict) -> dict[str, Any]:
    """Plain JSON; a figure that is not reached is null with a status."""
    return {
        "schema_version": 1,
        "gate": found.gate,
        "kind": (RunKind.SIMULATED if found.is_simulated else RunKind.MEASURED).value,
        "verdict": found.verdict.value,
        "exit_code": found.exit_code,
        "notes": list(found.notes),
        "results": [_result_json(result) for result in found.results],
    }


def gate_junit(found: GateVerdict) -> str:
    """JUnit XML: one test case a rule, engine and rate. Inconclusive counts as an error."""
    counts = dict.fromkeys(RuleVerdict, 0)
    simulated = " (simulated)" if found.is_simulated else ""
    suite = ElementTree.Element("testsuite", name=f"earwitness gate {found.gate}{simulated}")
    for result in found.results:
        counts[result.verdict] += 1
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"{result.engine}.{result.rate_rps:g}rps", name=result.rule
        )
        message = f"{_figures(result)}{result.reason}"
        if result.verdict is RuleVerdict.FAIL:
            ElementTree.SubElement(case, "failure", message=message)
        elif result.verdict is RuleVerdict.INCONCLUSIVE:
            ElementTree.SubElement(case, "error", message=f"inconclusive: {message}")
        elif result.verdict is RuleVerdict.SKIPPED:
            ElementTree.SubElement(case, "skipped", message=message)
    suite.set("tests", str(len(found.results)))
    suite.set("failures", str(counts[RuleVerdict.FAIL]))
    suite.set("errors", str(counts[RuleVerdict.INCONCLUSIVE]))
    suite.set("skipped", str(counts[RuleVerdict.SKIPPED]))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _counts(found: GateVerdict) -> str:
    counts = {
        verdict: sum(result.verdict is verdict for result in found.results)
        for verdict in RuleVerdict
    }
    return ", ".join(f"{n} {_SIGNS[verdict]}" for verdict, n in counts.items() if n)


def _place(result: RuleResult) -> str:
    return f"{result.engine} at {result.rate_rps:g}/s"


def _figures(result: RuleResult) -> str:
    """`512.3 ms [480.1 ms, 560 ms] against 500 ms, n = 120, ` or nothing."""
    if result.value is None:
        return ""
    is_change = result.base is not None
    text = _number(result.value, result.unit, is_change=is_change)
    if result.lo is not None and result.hi is not None:
        lo, hi = (_number(end, result.unit, is_change=is_change) for end in (result.lo, result.hi))
        text += f" [{lo}, {hi}]"
    if result.limit is not None:
        text += f" against {_number(result.limit, result.unit, is_change=is_change)}"
    if result.base is not None:
        text += f", base {_number(result.base, result.unit)}"
    return f"{text}, n = {result.n}, "


def _number(value: float, unit: str, *, is_change: bool = False) -> str:
    text = quantity(value, unit)
    if is_change and unit == "share":
        text = text.replace(" %", " points")
    return f"+{text}" if is_change and value > 0 and math.isfinite(value) else text


def _result_json(result: RuleResult) -> dict[str, Any]:
    return {
        "rule": result.rule,
        "engine": result.engine,
        "rate_rps": result.rate_rps,
        "verdict": result.verdict.value,
        "reason": result.reason,
        "unit": result.unit,
        "value": _finite(result.value),
        "lo": _finite(result.lo),
        "hi": _finite(result.hi),
        "limit": _finite(result.limit),
        "base": _finite(result.base),
        "beyond": _beyond_json(result.beyond),
        "status": _status(result.value),
        "n": result.n,
        "needed_n": result.needed_n,
    }


def _beyond_json(found: ClusteredShare | None) -> dict[str, Any] | None:
    """Of a percentile: the share of requests beyond its limit, which is what was judged."""
    if found is None:
        return None
    return {
        "num": found.num_hits, "n": found.n, "value": found.value, "lo": found.lo, "hi": found.hi,
    }  # fmt: skip


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _status(value: float | None) -> str:
    if value is None:
        return "not_measured"
    return "ok" if math.isfinite(value) else "not_reached"
