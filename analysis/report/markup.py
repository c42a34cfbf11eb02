"""HTML built from parts: text is escaped unless it is markup already, so nothing can slip in."""

from __future__ import annotations

import json
from html import escape
from typing import Any

__all__ = ["EMPTY", "Markup", "data_block", "el", "join", "raw", "void"]


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


EMPTY = Markup("")
Child = object


def raw(html: str) -> Markup:
    """Declare a string to be HTML. Only for constants and for what this package rendered."""
    return Markup(html)


def el(name: str, /, *children: Child, **attributes: Any) -> Markup:
    """An element. `cls` is `class`; an underscore becomes a hyphen; True alone is a bare word.

    A child that is not `Markup` is escaped; None and False are left out, in attributes, too.
    """
    return Markup(f"<{name}{_attributes(attributes)}>{join(*children)}</{name}>")


def void(name: str, /, **attributes: Any) -> Markup:
    """An element without an end tag."""
    return Markup(f"<{name}{_attributes(attributes)}>")


def join(*children: Child) -> Markup:
    """Children one after the other."""
    return Markup("".join(_child(child) for child in children))


def data_block(block_id: str, value: object) -> Markup:
    """JSON for a script to read. `<` is written as an escape: no text can end the block."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return el("script", raw(text), type="application/json", id=block_id)


def _child(child: Child) -> str:
    if child is None or child is False:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, (list, tuple)):
        return join(*child)
    return escape(str(child))


def _attributes(attributes: dict[str, Any]) -> str:
    parts = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = "class" if key == "cls" else key.rstrip("_").replace("_", "-")
        parts.append(f" {name}" if value is True else f' {name}="{escape(str(value))}"')
    return "".join(parts)
