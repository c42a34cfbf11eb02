"""How a mistake in a YAML file of `harness` or `analysis` is told: one line, path and suggestion.

The work is done in `engines.config_errors`; this is its name on this side of the wall.
"""

from __future__ import annotations

from engines.config_errors import describe, read_yaml, suggest, validate

__all__ = ["describe", "read_yaml", "suggest", "validate"]
