"""Prompts, engine names, voices and error bodies are data, whatever they contain."""

from __future__ import annotations

import json
import re

import pytest
from rich.console import Console

from analysis.report import ReportSettings, load_report, render
from analysis.report.csv_tables import render_csv
from analysis.report.markdown import render_markdown
from analysis.report.markup import data_block, el, raw
from analysis.report.terminal import print_model
from tests.builders.reports import HOSTILE, SENTENCE, report_run

EVIL = '"><script>alert(1)</script>[red]`x`|y'


@pytest.fixture(scope="module")
def evil_run(tmp_path_factory):
    """A run whose engine, prompts, errors, notes and command are all hostile."""
    return report_run(
        tmp_path_factory.mktemp("evil"),
        engines={EVIL: SENTENCE},
        rates=(1.0,),
        num_requests=8,
        notes=[HOSTILE],
        command=["earwitness", "run", HOSTILE],
        prompts={"name": HOSTILE},
    )


@pytest.fixture(scope="module")
def page(evil_run) -> str:
    """Its page."""
    [path] = render(evil_run, ["html"], settings=ReportSettings(title=HOSTILE))
    return path.read_text()


def test_page_has_only_its_own_scripts(page):
    """Two data blocks and one script; nothing a text brought along."""
    tags = re.findall(r"<script\b[^>]*>", page)

    assert 3 == len(tags)
    assert 2 == sum("application/json" in tag for tag in tags)


def test_hostile_texts_appear_as_text(page):
    """They are shown, escaped."""
    assert "&lt;/script&gt;&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in page
    assert "<b>bold</b>" not in page


def test_data_blocks_hold_the_texts_whole(page):
    """Escaped for HTML, and still the same text for the reader."""
    block = re.search(r'<script type="application/json" id="requests-data">(.*?)</script>', page)

    assert HOSTILE in json.loads(block.group(1))["prompts"]


def test_no_text_can_end_a_data_block():
    """`<` never appears in one."""
    block = data_block("x", {"a": "</script><!--<script>", "b": "\u2028"})

    assert 2 == block.count("<")
    assert "\u2028" not in block


def test_children_and_attributes_are_escaped():
    """Only what was declared to be markup stays markup."""
    made = el("p", "<i>", raw("<b></b>"), title='"<')

    assert '<p title="&quot;&lt;">&lt;i&gt;<b></b></p>' == made


def test_no_inline_style_or_handler_is_on_the_page(page):
    """The content policy would refuse them."""
    body = page[page.index("<body") : page.index('<script type="application/json"')]

    assert [] == re.findall(r"<[^>]*\s(?:style|on\w+)=", body)


def test_content_policy_allows_no_network(page):
    """Everything is refused but the page's own style, script and sound."""
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page).group(1)

    assert "default-src &#x27;none&#x27;" in policy
    assert "unsafe" not in policy
    assert [] == re.findall(r"https?:", policy)


def test_markdown_shows_hostile_texts_as_text(evil_run):
    """No HTML, link, table cell or code can be opened by a name."""
    text = render_markdown(load_report(evil_run).model)
    plain = re.sub(r"```.*?```", "", text, flags=re.S)

    assert "<script" not in plain.replace("\\<script", "")
    assert r"\|y" in plain
    assert "`x`" not in plain.replace(r"\`x\`", "")


def test_terminal_prints_markup_as_it_is(evil_run):
    """`[red]` in a name is no colour."""
    console = Console(width=200)
    with console.capture() as captured:
        print_model(load_report(evil_run).model, console)

    assert "[red]" in captured.get()


def test_spreadsheet_formula_is_defused(evil_run):
    """A cell that starts with = is text in every spreadsheet."""
    report = load_report(report_run(evil_run.parent, engines={"=1+1": SENTENCE}, name="formula"))

    assert "'=1+1" in render_csv(report.model)
    assert ",=1+1" not in render_csv(report.model)
