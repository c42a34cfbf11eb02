"""A local page that lists runs and shows them side by side. Reads only; 127.0.0.1 alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from analysis.aggregate import METRICS_FILE, METRICS_SCHEMA
from analysis.derive import DERIVED_DIR
from analysis.errors import AnalysisError
from analysis.report.build import build_model
from analysis.report.markup import EMPTY, Markup, el, join, void
from analysis.report.model import ReportModel
from analysis.report.page import content_policy, page_markup
from analysis.report.settings import ReportSettings
from analysis.report.side_by_side import side_by_side
from analysis.report.words import minute, rate
from harness.errors import HarnessError
from harness.records import RunRecord
from harness.store import open_run

__all__ = ["RunSummary", "build_app", "find_runs", "serve_view"]

_MAX_COMPARED = 4
_FILES = {"report.html": "text/html", "report.md": "text/markdown", "report.csv": "text/csv"}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run folder as the list shows it. `metrics` is None where nobody analysed it yet."""

    name: str
    folder: Path
    record: RunRecord | None
    metrics: Mapping[str, Any] | None
    problem: str = ""

    @property
    def engines(self) -> tuple[str, ...]:
        """Names of its engines."""
        points = self.record.points if self.record else []
        return tuple(dict.fromkeys(point.engine for point in points))

    @property
    def rates(self) -> tuple[float, ...]:
        """Offered rates in order."""
        points = self.record.points if self.record else []
        return tuple(sorted({point.rate_rps for point in points}))


def find_runs(root: Path) -> list[RunSummary]:
    """Run folders below `root` (itself, its children and theirs), newest first.

    Raises:
        AnalysisError: `root` is no folder.
    """
    if not root.is_dir():
        raise AnalysisError(f"{root}: no such folder of runs")
    heads = [root / "run.json", *root.glob("*/run.json"), *root.glob("*/*/run.json")]
    found = [_summary(root, head.parent) for head in heads if head.is_file()]
    return sorted(found, key=lambda run: run.record.created_utc if run.record else "", reverse=True)


def _summary(root: Path, folder: Path) -> RunSummary:
    name = folder.name if folder == root else folder.relative_to(root).as_posix()
    try:
        record = open_run(folder).record
    except HarnessError as failure:
        return RunSummary(name, folder, None, None, str(failure))
    try:
        text = (folder / DERIVED_DIR / METRICS_FILE).read_text(encoding="utf-8")
        metrics = json.loads(text)
    except (OSError, ValueError):
        return RunSummary(name, folder, record, None, "not analysed yet")
    if metrics.get("schema_version") != METRICS_SCHEMA:
        return RunSummary(name, folder, record, None, "analysed by another version: report again")
    return RunSummary(name, folder, record, metrics)


# -- server ---------------------------------------------------------------------------------------

_ROOT_KEY = web.AppKey("root", Path)


def build_app(root: Path) -> web.Application:
    """The page over one folder of runs; every request reads the disk anew."""
    app = web.Application(middlewares=[_guard])
    app[_ROOT_KEY] = root
    app.router.add_get("/", _index)
    app.router.add_get("/compare", _compare)
    app.router.add_get("/run/{name:.+}/{file}", _file)
    return app


def serve_view(root: Path, *, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Raises:
        AnalysisError: no such folder, or the port is taken.
    """
    find_runs(root)  # a wrong folder is an error before the first request, not on a page
    import asyncio

    try:
        asyncio.run(_serve(root, port, on_ready))
    except OSError as failure:
        raise AnalysisError(f"127.0.0.1:{port}: cannot listen: {failure.strerror}") from failure


async def _serve(root: Path, port: int, on_ready: Callable[[str], None]) -> None:
    import asyncio

    runner = web.AppRunner(build_app(root))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        on_ready(f"http://127.0.0.1:{runner.addresses[0][1]}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


@web.middleware
async def _guard(request: web.Request, handler: Any) -> web.StreamResponse:
    """Only a browser that meant this machine: a foreign host name would be a rebound one."""
    host = request.host.rsplit(":", 1)[0]
    if host not in ("127.0.0.1", "localhost"):
        raise web.HTTPForbidden(text="this page is served to 127.0.0.1 alone\n")
    response: web.StreamResponse = await handler(request)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


async def _index(request: web.Request) -> web.Response:
    runs = find_runs(request.app[_ROOT_KEY])
    wanted = request.query.get("q", "").strip().lower()
    kind = request.query.get("kind", "")
    shown = [run for run in runs if _matches(run, wanted, kind)]
    return _page("Runs", _filters(wanted, kind), _list(shown, len(runs)))


async def _compare(request: web.Request) -> web.Response:
    chosen = request.query.getall("run", [])
    runs = {run.name: run for run in find_runs(request.app[_ROOT_KEY])}
    unknown = [name for name in chosen if name not in runs or runs[name].metrics is None]
    if unknown:
        raise web.HTTPNotFound(text=f"{unknown[0]}: no analysed run of that name\n")
    if not 2 <= len(chosen) <= _MAX_COMPARED:
        raise web.HTTPBadRequest(text=f"choose 2 to {_MAX_COMPARED} runs to compare\n")
    models = [_model(runs[name]) for name in chosen]
    return _page("Side by side", side_by_side(models))


async def _file(request: web.Request) -> web.StreamResponse:
    """A report of a listed run; names are looked up, never joined into a path."""
    runs = {run.name: run for run in find_runs(request.app[_ROOT_KEY])}
    run = runs.get(request.match_info["name"])
    name = request.match_info["file"]
    if run is None or name not in _FILES:
        raise web.HTTPNotFound(text="no such report\n")
    path = run.folder / name
    if not path.is_file():
        hint = f"not written yet; run: earwitness report {run.folder}"
        raise web.HTTPNotFound(text=f"{name}: {hint}\n")
    return web.Response(body=path.read_bytes(), content_type=_FILES[name], charset="utf-8")


def _model(run: RunSummary) -> ReportModel:
    assert run.metrics is not None
    settings = ReportSettings(title=run.name)
    return build_model(run.metrics, run.record, settings)


# -- pages ----------------------------------------------------------------------------------------


def _page(title: str, *content: Markup) -> web.Response:
    nav = el("nav", el("a", "All runs", href="/"), aria_label="Back")
    return web.Response(
        text=page_markup(title, [nav, el("h1", title), *content], can_ask=True),
        content_type="text/html",
        headers={"Content-Security-Policy": content_policy(can_ask=True)},
    )


def _matches(run: RunSummary, wanted: str, kind: str) -> bool:
    if kind and (run.record is None or run.record.kind != kind):
        return False
    return wanted in " ".join((run.name, *run.engines)).lower()


def _filters(wanted: str, kind: str) -> Markup:
    kinds = [
        el("option", label, value=value, selected=value == kind)
        for value, label in (("", "all"), ("measured", "measured"), ("simulated", "simulated"))
    ]
    return el(
        "form",
        el("label", "Name or engine", void("input", type="search", name="q", value=wanted)),
        el("label", "Kind", el("select", *kinds, name="kind")),
        el("button", "Filter", type="submit"),
        cls="tools",
        method="get",
        action="/",
    )


def _list(runs: Sequence[RunSummary], num_all: int) -> Markup:
    if not runs:
        return el("p", "No run matches." if num_all else "No run folder is here.", cls="lead")
    titles = ("", "run", "recorded", "kind", "status", "engines", "rates", "verdicts", "reports")
    head = el("tr", *(el("th", title, scope="col") for title in titles))
    table = el("table", el("thead", head), el("tbody", *map(_row, runs)))
    return el(
        "form",
        el("div", table, cls="scroll", tabindex="0", role="region", aria_label="Runs"),
        el("button", "Compare the chosen runs", type="submit"),
        method="get",
        action="/compare",
    )


def _row(run: RunSummary) -> Markup:
    box = (
        void("input", type="checkbox", name="run", value=run.name, aria_label=f"compare {run.name}")
        if run.metrics is not None
        else EMPTY
    )
    record = run.record
    if record is None:
        return el("tr", el("td"), el("td", run.name), el("td", run.problem, colspan=7))
    links = [
        join(el("a", name, href=f"/run/{run.name}/{name}"), " ")
        for name in _FILES
        if (run.folder / name).is_file()
    ]
    return el(
        "tr",
        el("td", box),
        el("td", run.name, cls="label"),
        el("td", minute(record.created_utc), cls="label"),
        el("td", str(record.kind)),
        el("td", str(record.status)),
        el("td", ", ".join(run.engines)),
        el("td", ", ".join(rate(each) for each in run.rates)),
        el("td", _verdicts(run), cls="label"),
        el("td", *links) if links else el("td", run.problem or "none"),
    )


def _verdicts(run: RunSummary) -> str:
    if run.metrics is None:
        return run.problem
    verdicts = [point["validity"]["verdict"] for point in run.metrics["points"]]
    return ", ".join(
        f"{verdicts.count(name)} {name}"
        for name in ("valid", "suspect", "invalid")
        if name in verdicts
    )
