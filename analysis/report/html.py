"""One self-contained page: no network, a strict content policy, everything escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from analysis.report import sections
from analysis.report.charts import decompose
from analysis.report.clips import ClipSet
from analysis.report.markup import Markup, data_block, el, join, raw, void
from analysis.report.model import ReportModel
from analysis.report.tables import RunTables

__all__ = ["PageData", "render_html"]

_SECTIONS = (
    ("decisions", "In short"),
    ("latency", "Latency"),
    ("playback", "Playback"),
    ("speech", "Speech"),
    ("points", "Points"),
    ("requests", "Requests"),
    ("reproduce", "Reproduce"),
    ("definitions", "Words"),
)


@dataclass(frozen=True, slots=True)
class PageData:
    """What the page shows beside the model. `target_rps` is the rate of the answers on top."""

    tables: RunTables
    explorer: Mapping[str, Any]
    clips: ClipSet
    target_rps: float


def render_html(model: ReportModel, data: PageData) -> str:
    """The whole page."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:;"
        f" media-src data: blob:; style-src {_hash(style)}; script-src {_hash(script)}"
    )
    head = el(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=policy),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        void("meta", name="referrer", content="no-referrer"),
        el("title", f"{model.title} – earwitness report"),
        el("style", raw(style)),
    )
    return f"<!doctype html>\n{el('html', head, _body(model, data, script), lang='en')}\n"


def _body(model: ReportModel, data: PageData, script: str) -> Markup:
    labels = data.explorer["labels"]
    main = el(
        "main",
        sections.decisions_section(model),
        sections.curves_section(model),
        sections.waits_section(model, data.tables, decompose(model, data.tables), data.target_rps),
        sections.speech_section(model),
        sections.points_section(model, data.tables, data.target_rps),
        sections.requests_section(
            labels["point"], labels["outcome"], clips_note=_clips_note(data.clips)
        ),
        sections.environment_section(model),
        sections.definitions_section(model),
        id="main",
    )
    links = [el("li", el("a", title, href=f"#{name}")) for name, title in _SECTIONS]
    clips = {
        request_id: {"flac": clip.flac, "rate": clip.sample_rate_hz}
        for request_id, clip in data.clips.clips.items()
    }
    return el(
        "body",
        el("a", "Skip to the report", href="#main", cls="skip"),
        sections.header(model),
        el("nav", el("ul", *links), cls="toc", aria_label="Sections"),
        main,
        el("footer", "Made by earwitness. Nothing on this page was loaded from a network."),
        join(data_block("requests-data", data.explorer), data_block("audio-data", clips)),
        el("script", raw(script)),
    )


def _clips_note(clips: ClipSet) -> str:
    if not clips.num_wanted:
        return "No audio is in this page."
    note = (
        f"{len(clips.clips)} clips are in this page: the worst and some median ones of each point"
    )
    if clips.num_left_out:
        note += f"; {clips.num_left_out} more did not fit the size budget"
    return f"{note}."


def _asset(name: str) -> str:
    return resources.files("analysis.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
