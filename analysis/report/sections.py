"""The parts of the page, top to bottom. Figures come from the model, pictures from the charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from analysis.report.charts import (
    PARTS,
    Decomposition,
    ecdf_chart,
    in_flight_chart,
    pass_chart,
    percentile_chart,
    share_chart,
    slack_chart,
    ttfa_over_time_chart,
)
from analysis.report.markup import EMPTY, Markup, el, join, raw, void
from analysis.report.model import (
    Cell,
    Column,
    Decision,
    EngineView,
    PointView,
    ReportModel,
    Table,
    Tone,
)
from analysis.report.page import page_section
from analysis.report.svg import Chart, Dots, Line, legend_key, render_stack, render_svg
from analysis.report.tables import RunTables
from analysis.report.words import count, minute, rate

__all__ = [
    "behaviour_section",
    "card_markup",
    "curves_section",
    "decisions_section",
    "definitions_section",
    "environment_section",
    "figure_markup",
    "folded",
    "header",
    "legend_markup",
    "points_section",
    "requests_section",
    "speech_section",
    "table_markup",
    "waits_section",
]

# Says in words what the colour of a card says; colour alone would be lost on some readers.
_TONE_WORDS = {Tone.GOOD: "good", Tone.WARN: "caution", Tone.BAD: "problem", Tone.NONE: ""}


def header(model: ReportModel) -> Markup:
    """Title, what kind of numbers these are, and what holds for all of them."""
    kind = "simulated" if model.is_simulated else "measured"
    badges = [
        el("span", kind, cls=f"badge {'warn' if model.is_simulated else 'none'}"),
        " ",
        el("span", model.status, cls=f"badge {'none' if model.status == 'complete' else 'warn'}"),
    ]
    facts = [el("span", f"{fact.name}: {fact.text}") for fact in model.conditions]
    banner = (
        el("p", "SIMULATED: these are a model's numbers, not measurements.", cls="banner")
        if model.is_simulated
        else EMPTY
    )
    created = el("span", f"recorded {minute(model.created_utc)}") if model.created_utc else None
    return el(
        "header",
        el("h1", model.title),
        el("p", *badges),
        el("p", created, *facts, cls="facts"),
        banner,
        el("ul", *(el("li", note) for note in model.notes), cls="notes") if model.notes else None,
        cls="top",
    )


def decisions_section(model: ReportModel) -> Markup:
    """The questions at the top, one card each."""
    return page_section(
        "decisions", "In short", el("ul", *map(card_markup, model.decisions), cls="cards")
    )


def card_markup(decision: Decision) -> Markup:
    """One question with its answers."""
    rows = [
        join(
            el("dt", finding.who),
            el(
                "dd",
                el("span", finding.cell.text, cls=str(finding.cell.tone)),
                _tone_word(finding.cell.tone),
                el("small", finding.cell.note) if finding.cell.note else None,
            ),
        )
        for finding in decision.findings
    ]
    details = None
    if decision.details:
        items = el("ul", *(el("li", text) for text in decision.details))
        summary = el("summary", f"Reasons ({len(decision.details)})")
        details = items if decision.is_open else el("details", summary, items)
    return el(
        "li",
        el("h3", _linked(decision.question, decision.term)),
        el("dl", *rows),
        el("p", decision.note) if decision.note else None,
        details,
        cls=f"card {decision.tone}",
    )


def _tone_word(tone: Tone) -> Markup:
    word = _TONE_WORDS[tone]
    return el("span", f" ({word})", cls="sr") if word else EMPTY


# -- charts ---------------------------------------------------------------------------------------


def curves_section(model: ReportModel) -> Markup:
    """Latency against rate, linear and logarithmic, and the table of points."""
    both = [
        el(
            "div",
            *(
                figure_markup(percentile_chart(model.engines, percent, is_log=is_log), model)
                for percent in (50, 95, 99)
            ),
            figure_markup(
                percentile_chart(model.engines, 95, metric="audible_received", is_log=is_log),
                model,
            ),
            cls=f"grid-charts {'logarithmic' if is_log else 'linear'}",
        )
        for is_log in (False, True)
    ]
    switch = [
        void("input", type="checkbox", id="log-axis", cls="switch"),
        " ",
        el("label", "logarithmic latency axis", for_="log-axis", cls="switch"),
    ]
    return page_section(
        "latency",
        "Latency against rate",
        el(
            "p",
            "Each value is over the requests of all seeds of its rate; bars are 95 % intervals. A"
            " cross at the top: the percentile was not reached, because it lands on a failed"
            " request; no line is drawn across such a rate.",
            cls="lead",
        ),
        *switch,
        legend_markup(model.engines),
        *both,
        table_markup(model.points_table),
        folded("More of every point", table_markup(model.more_table)),
        table_markup(model.outcomes_table),
    )


def waits_section(
    model: ReportModel, tables: RunTables, parts: Decomposition | None, target_rps: float
) -> Markup:
    """Where the wait goes, and whether playback runs dry."""
    figures = [
        _stack_figure(parts) if parts else None,
        figure_markup(pass_chart(model.engines, tables, target_rps), model),
        figure_markup(
            share_chart(
                model.engines,
                "underrun_rate",
                title="Replies that stutter",
                chart_id="underruns",
            ),
            model,
        ),
        figure_markup(slack_chart(model.engines, tables, target_rps), model),
    ]
    return page_section(
        "playback",
        "Where the wait goes, and what the listener hears",
        legend_markup(model.engines),
        el("div", *figures, cls="grid-charts"),
        folded("How long a player would have to wait", table_markup(model.start_delay_table)),
    )


def behaviour_section(model: ReportModel) -> Markup | None:
    """Text in pieces and interruptions, where the scenario had any."""
    tables = [t for t in (model.text_table, model.interruptions_table) if t.rows]
    if not tables:
        return None
    return page_section(
        "behaviour", "Text in pieces, and interruptions", *map(table_markup, tables)
    )


def folded(title: str, *children: object) -> Markup:
    """What few readers need: there, but closed."""
    return el("details", el("summary", title), *children)


def speech_section(model: ReportModel) -> Markup:
    """Word error rates against rate, and what is behind them."""
    chart = share_chart(model.engines, "wer", title="Word error rate", chart_id="wer")
    return page_section(
        "speech",
        "Is it speech, and the right words",
        el("div", figure_markup(chart, model), cls="grid-charts") if chart else None,
        table_markup(model.speech_table),
    )


def points_section(model: ReportModel, tables: RunTables) -> Markup:
    """Distributions by engine, and every point over time."""
    ecdfs = [
        figure_markup(chart, model, legend=True)
        for engine in model.engines
        if (chart := ecdf_chart(engine, tables)) is not None
    ]
    blocks = [
        _point_block(point, engine, model, tables)
        for engine in model.engines
        for point in engine.points
    ]
    return page_section("points", "Every point", el("div", *ecdfs, cls="grid-charts"), *blocks)


def _point_block(
    point: PointView, engine: EngineView, model: ReportModel, tables: RunTables
) -> Markup:
    charts = [
        in_flight_chart(point, tables, engine.series),
        ttfa_over_time_chart(point, tables, engine.series),
    ]
    name = f"{engine.name} at {rate(point.rate_rps)}, seed {point.seed}"
    reasons = [el("li", reason) for reason in point.reasons]
    metric = point.metrics.get("audible_ttfa")
    return el(
        "details",
        el("summary", name if point.is_complete else f"{name}, interrupted"),
        el(
            "p",
            el("span", point.verdict.text, cls=f"badge {point.verdict.tone}"),
            " ",
            el("span", point.load.text, cls=f"badge {point.load.tone}"),
            f" achieved {point.achieved.text}, n = {point.n}, failed {point.failures.text}",
        ),
        el("ul", *reasons) if reasons else None,
        el("p", metric.successes, cls="lead") if metric else None,
        el(
            "div",
            *(figure_markup(chart, model, legend=True) for chart in charts if chart),
            cls="grid-charts",
        ),
        cls="point",
    )


def figure_markup(
    chart: Chart | None, model: ReportModel, *, legend: bool = False
) -> Markup | None:
    """A chart with its title and its words; None stays None."""
    if chart is None:
        return None
    if not chart.has_values:  # an axis of nothing would be an invented one
        words = el("p", "No value was reached at any rate.", cls="bad")
        return el(
            "figure",
            el("figcaption", el("h3", chart.title)),
            words,
            el("figcaption", chart.description),
        )
    return el(
        "figure",
        el("figcaption", el("h3", chart.title)),
        _chart_legend(chart) if legend else None,
        raw(render_svg(chart, watermark="SIMULATED" if model.is_simulated else "")),
        el("figcaption", chart.description),
    )


def _stack_figure(parts: Decomposition) -> Markup:
    title = "Mean parts of the wait for the first sound (ms)"
    names = [
        el(
            "li",
            raw(
                f'<svg viewBox="0 0 34 14" aria-hidden="true"><rect class="p{number}" x="6"'
                ' y="2" width="20" height="10"/></svg>'
            ),
            name,
        )
        for number, name in enumerate(PARTS)
    ]
    columns = (
        Column("engine", is_number=False),
        Column("rate"),
        Column("n with sound"),
        *(Column(name) for name in PARTS),
        Column("together"),
    )
    rows = tuple(tuple(Cell(text) for text in row) for row in parts.table)
    table = Table("The same in figures: means over requests with a first sound.", columns, rows)
    return el(
        "figure",
        el("figcaption", el("h3", title)),
        el("ul", *names, cls="legend"),
        raw(render_stack("parts", title, parts.description, parts.stack)),
        el("details", el("summary", "Figures"), table_markup(table)),
    )


def legend_markup(engines: Sequence[EngineView]) -> Markup:
    """Colour, dash and marker of each engine."""
    marks = [Line((), engine.series, engine.name) for engine in engines]
    return _legend_of(marks)


def _chart_legend(chart: Chart) -> Markup:
    return _legend_of(mark for mark in chart.marks if isinstance(mark, Line | Dots) and mark.label)


def _legend_of(marks: Iterable[Any]) -> Markup:
    items = [el("li", raw(legend_key(mark)), mark.label) for mark in marks]
    return el("ul", *items, cls="legend")


# -- tables ---------------------------------------------------------------------------------------


def table_markup(table: Table) -> Markup:
    """A table that scrolls by itself where the screen is narrow; without rows its caption alone."""
    if not table.rows:
        return el("p", table.caption, cls="lead")
    head = [
        el(
            "th",
            _linked(column.title, column.term),
            scope="col",
            cls="num" if column.is_number else None,
        )
        for column in table.columns
    ]
    body = [
        el(
            "tr",
            *(_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)),
        )
        for row in table.rows
    ]
    return _scrolling(table.caption, el("thead", el("tr", *head)), el("tbody", *body))


def _scrolling(caption: str, *parts: Markup) -> Markup:
    """A table under its caption that scrolls by itself; focusable, so that a keyboard can."""
    return join(
        el("p", caption, cls="caption"),
        el(
            "div",
            el("table", *parts),
            cls="scroll",
            tabindex="0",
            role="region",
            aria_label=caption.split(".")[0],
        ),
    )


def _linked(title: str, term: str | None) -> object:
    """A title that leads to the definition of its term, where it has one."""
    return title if term is None else el("a", title, href=f"#def-{term}", cls="term")


def _cell(cell: Cell, column: Column) -> Markup:
    return el(
        "td",
        el("span", cell.text, cls=str(cell.tone)) if cell.tone is not Tone.NONE else cell.text,
        _tone_word(cell.tone),
        el("small", cell.note) if cell.note else None,
        cls="num" if column.is_number else None,
    )


# -- explorer, environment, words -----------------------------------------------------------------


def requests_section(
    points: Sequence[str], outcomes: Sequence[str], *, num_requests: int, clips_note: str
) -> Markup:
    """The frame of the request explorer; the page's script fills it. Closed at first.

    `points` and `outcomes` are the labels to filter by, in the order of their codes.
    """
    choices = [el("option", name, value=str(number)) for number, name in enumerate(points)]
    endings = [el("option", name, value=str(number)) for number, name in enumerate(outcomes)]
    tools = el(
        "div",
        el("label", "Text or request", void("input", type="search", id="filter-text")),
        el(
            "label",
            "Point",
            el("select", el("option", "all", value=""), *choices, id="filter-point"),
        ),
        el(
            "label",
            "Outcome",
            el("select", el("option", "all", value=""), *endings, id="filter-outcome"),
        ),
        el("label", void("input", type="checkbox", id="filter-audio"), "with audio", cls="check"),
        cls="tools",
    )
    pager = el(
        "div",
        el("button", "Previous", type="button", id="page-before"),
        el("button", "Next", type="button", id="page-after"),
        el("span", "", id="requests-status", role="status"),
        cls="tools",
    )
    table = _scrolling(
        "Requests of the measurement phase. A ♪ marks those with audio.",
        el("thead"),
        el("tbody"),
    )
    return page_section(
        "requests",
        "Every request",
        el(
            "p",
            "Worst first. Open one for its waterfall: when each chunk came against when it was"
            f" due, what played when, what was heard. {clips_note}",
            cls="lead",
        ),
        el(
            "details",
            el("summary", count(num_requests, "request")),
            el("div", tools, table, pager, id="requests-app", hidden=True),
            id="requests-list",
        ),
        el("noscript", el("p", "The request explorer needs JavaScript.")),
    )


def environment_section(model: ReportModel) -> Markup:
    """How to make these numbers again, and where they were made."""
    rows = [
        el("tr", el("th", fact.name, scope="row"), el("td", fact.text))
        for fact in model.environment
    ]
    table = _scrolling("Machine, versions and engines.", el("tbody", *rows))
    return page_section(
        "reproduce",
        "Reproduce",
        el("pre", el("code", "\n".join(model.commands))) if model.commands else None,
        folded("Machine, versions and engines", table) if rows else None,
    )


def definitions_section(model: ReportModel) -> Markup:
    """Every word that the page uses, one click from where it is used."""
    entries = [
        el(
            "div",
            el("dt", term.title, f" ({term.unit})" if term.unit else None, id=f"def-{term.name}"),
            el("dd", term.definition),
        )
        for term in model.terms
    ]
    words = folded(f"All {len(entries)} of them", el("dl", *entries, cls="defs"))
    return page_section("definitions", "What the words mean", words)
