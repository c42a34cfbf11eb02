"""One set of colours for every picture, told apart by colour-blind eyes and on either background.

Hues are those of Okabe and Ito (2008), darkened or lightened so that lines keep a contrast of at
least 3:1 (WCAG 2.2, non-text contrast) on white and on the dark page. Marker shapes and dashes
differ as well: no series is told by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DASHES", "INK_DARK", "INK_LIGHT", "MARKERS", "PARTS", "SERIES", "Tint"]


@dataclass(frozen=True, slots=True)
class Tint:
    """One colour on a white and on a dark page."""

    light: str
    dark: str


SERIES: tuple[Tint, ...] = (
    Tint("#0067a8", "#56b4e9"),  # blue
    Tint("#c44e00", "#f58a3c"),  # vermilion
    Tint("#00805c", "#2fc79b"),  # bluish green
    Tint("#a8488c", "#e39ac6"),  # reddish purple
    Tint("#8a6d00", "#e6c229"),  # dark yellow
    Tint("#4b4f58", "#b7bdc9"),  # grey
)
# Parts of a wait, in the order in which they happen: connect, server wait, silence, stall.
PARTS: tuple[Tint, ...] = (SERIES[5], SERIES[0], SERIES[4], SERIES[1])
MARKERS: tuple[str, ...] = ("o", "s", "^", "D", "v", "P")  # names that matplotlib uses
DASHES: tuple[str, ...] = ("", "6 3", "2 3", "8 3 2 3", "4 2", "1 2")
INK_LIGHT = "#1b1f24"
INK_DARK = "#e6e8eb"
