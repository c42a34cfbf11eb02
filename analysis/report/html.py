"""The page of a run: what is on it, in which order, and the data its explorer reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.compare import Comparison
from analysis.report import sections
from analysis.report.charts import decompose
from analysis.report.clips import ClipSet
from analysis.report.compared import compared_section, summary_markup
from analysis.report.markup import Markup, data_block, el
from analysis.report.model import ReportModel
from analysis.report.page import page_markup
from analysis.report.tables import RunTables
from analysis.report.words import count

__all__ = ["PageData", "render_html"]

_SECTIONS = (
    ("decisions", "In short"),
    ("latency", "Latency"),
    ("compared", "Compared"),
    ("playback", "Playback"),
    ("behaviour", "Behaviour"),
    ("speech", "Speech"),
    ("points", "Points"),
    ("requests", "Requests"),
    ("reproduce", "Reproduce"),
    ("definitions", "Words"),
)


@dataclass(frozen=True, slots=True)
class PageData:
    """What the page shows beside the model.

    target_rps: the rate of the answers on top. comparison: of the run's engines, where there are
    several.
    """

    tables: RunTables
    explorer: Mapping[str, Any]
    clips: ClipSet
    target_rps: float
    comparison: Comparison | None = None


def render_html(model: ReportModel, data: PageData) -> str:
    """The whole page."""
    labels = data.explorer["labels"]
    tables, target = data.tables, data.target_rps
    clips = {
        request_id: {"flac": clip.flac, "rate": clip.sample_rate_hz}
        for request_id, clip in data.clips.clips.items()
    }
    behaviour = sections.behaviour_section(model)
    absent = {"behaviour"} if behaviour is None else set()
    absent |= {"compared"} if data.comparison is None else set()
    links = [
        el("li", el("a", title, href=f"#{name}")) for name, title in _SECTIONS if name not in absent
    ]
    top = [
        sections.header(model),
        el("nav", el("ul", *links), cls="toc", aria_label="Sections"),
    ]
    body = [
        sections.decisions_section(model),
        sections.curves_section(model),
        *([_compared(data.comparison, model)] if data.comparison else []),
        sections.waits_section(model, tables, decompose(model, tables), target),
        *([behaviour] if behaviour else []),
        sections.speech_section(model),
        sections.points_section(model, tables),
        sections.requests_section(
            labels["point"],
            labels["outcome"],
            num_requests=len(data.explorer["values"]["id"]),
            clips_note=_clips_note(data.clips),
        ),
        sections.environment_section(model),
        sections.definitions_section(model),
        data_block("requests-data", data.explorer),
        data_block("audio-data", clips),
    ]
    return page_markup(model.title, body, top=top, has_script=True)


def _compared(found: Comparison, model: ReportModel) -> Markup:
    return compared_section(found, model, lead=summary_markup(found))


def _clips_note(clips: ClipSet) -> str:
    if not clips.num_wanted:
        return "No audio is in this page."
    note = (
        f"In this page: {count(len(clips.clips), 'clip')}, the worst and some median ones of each"
        " point"
    )
    if clips.num_left_out:
        note += f"; {clips.num_left_out} more did not fit the size budget"
    return f"{note}."
