"""Where tables are printed."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console

__all__ = ["Terminal"]


class Terminal(Console):
    """A console that leaves a closed pipe to `main`: its own way out is exit code 1.

    That is what a gate says that failed.
    """

    def on_broken_pipe(self) -> NoReturn:
        """The reader went away (`| head`).

        Raises:
            BrokenPipeError: always.
        """
        raise BrokenPipeError
