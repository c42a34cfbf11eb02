"""The model's tables as CSV: values as numbers, the printed words beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from analysis.report.model import PointView, ReportModel
from analysis.report.words import num_hits, point_value

__all__ = ["render_csv"]

_PERCENTS = (50, 95, 99)
_HEAD = (
    "point_id", "engine", "rate_rps", "seed", "n", "failed", "verdict", "load", "metric", "unit",
    "statistic", "value", "lo", "hi", "status", "metric_n", "missing", "not_reached",
)  # fmt: skip
# A spreadsheet runs a cell that starts with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_csv(model: ReportModel) -> str:
    """One row for every figure of every point; an empty value was not measured or not reached."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_HEAD)
    for point in model.points:
        for row in _rows(point):
            writer.writerow([_safe(cell) for cell in row])
    return buffer.getvalue()


def _rows(point: PointView) -> Iterator[list[object]]:
    head = [
        point.point_id,
        point.engine,
        point.rate_rps,
        point.seed,
        point.n,
        _num_failed(point),
        point.verdict.text,
        point.load.text,
    ]
    for name, metric in point.raw["metrics"].items():
        counts = [metric["n"], metric["missing"], metric["not_reached"]]
        found = (
            {f"p{percent}": metric[f"p{percent}"] for percent in _PERCENTS}
            if "p50" in metric
            else {"value": metric["value"]}
        )
        for statistic, value in found.items():
            numbers = [value["value"], value["lo"], value["hi"], value["status"]]
            yield [*head, name, metric["unit"], statistic, *numbers, *counts]


def _num_failed(point: PointView) -> int | str:
    found = point_value(point.raw, "failure_rate")
    return "" if found is None or found.value is None else num_hits(found)


def _safe(cell: object) -> object:
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return f"'{cell}"
    return cell
