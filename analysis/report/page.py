"""The frame that every page shares: head, content policy, style, script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from analysis.report.markup import Markup, el, raw, void

__all__ = ["content_policy", "page_markup", "page_section", "page_style"]


def page_style() -> str:
    """The one style sheet."""
    return _asset("page.css")


def page_script() -> str:
    """The one script: the request explorer."""
    return _asset("page.js")


def content_policy(*, has_script: bool = False, can_ask: bool = False) -> str:
    """Nothing but the page's own style, script, pictures and sound, named by their hashes.

    `can_ask`: its forms may ask the server that it came from; a file has none.
    """
    script = f"; script-src {_hash(page_script())}" if has_script else ""
    form = "'self'" if can_ask else "'none'"
    return (
        f"default-src 'none'; base-uri 'none'; form-action {form}; img-src data:;"
        f" media-src data: blob:; style-src {_hash(page_style())}{script}"
    )


def page_markup(
    title: str,
    body: Sequence[Markup],
    *,
    top: Sequence[Markup] = (),
    has_script: bool = False,
    can_ask: bool = False,
) -> str:
    """A whole self-contained page; `top` stands before the main part."""
    policy = content_policy(has_script=has_script, can_ask=can_ask)
    head = el(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=policy),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        void("meta", name="referrer", content="no-referrer"),
        el("title", f"{title} – earwitness"),
        el("style", raw(page_style())),
    )
    footer = el("footer", "Made by earwitness. Nothing on this page was loaded from a network.")
    scripts = [el("script", raw(page_script()))] if has_script else []
    whole = el(
        "body",
        el("a", "Skip to the report", href="#main", cls="skip"),
        *top,
        el("main", *body, id="main"),
        footer,
        *scripts,
    )
    return f"<!doctype html>\n{el('html', head, whole, lang='en')}\n"


def page_section(section_id: str, title: str, *children: object) -> Markup:
    """A part of the page under its own heading."""
    return el("section", el("h2", title, id=section_id), *children, aria_labelledby=section_id)


def _asset(name: str) -> str:
    return resources.files("analysis.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
