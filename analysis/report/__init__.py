"""Reports of a run: HTML, Markdown, CSV, figures and the terminal, all from one model.

Reading order: `model` (what is said), `build` and `decisions` (how it is put into words), then one
module a format. Charts: `charts` (what), `svg` (how), `analysis.plots` for static figures.
"""

from __future__ import annotations

from analysis.report.render import (
    DEFAULT_FORMATS,
    FORMATS,
    Report,
    load_report,
    render,
    write_formats,
)
from analysis.report.settings import ReportSettings, Slo

__all__ = [
    "DEFAULT_FORMATS",
    "FORMATS",
    "Report",
    "ReportSettings",
    "Slo",
    "load_report",
    "render",
    "write_formats",
]
