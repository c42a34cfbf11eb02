"""No command answers a user's mistake with a traceback: every one of them is tried with some."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.cli import main as command

# Bad arguments, unreachable, folder or disk, missing extra.
MISTAKES = {2, 4, 6, 7}


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that does something, as the words that call it."""
    # By what it has, not by its class: the command library moved that between releases.
    if hasattr(node, "commands"):
        for name, inner in node.commands.items():
            yield from _leaves(inner, (*path, name))
    else:
        yield path


def _arguments(path: tuple[str, ...], value: str = "x") -> list[str]:
    """The same value for each argument of a command."""
    node: Any = typer.main.get_command(command.app)
    for word in path:
        node = node.commands[word]
    return [value for p in node.params if p.param_type_name == "argument"]


COMMANDS = sorted(_leaves(typer.main.get_command(command.app)))
WITH_ARGUMENTS = [path for path in COMMANDS if _arguments(path)]


@pytest.fixture
def mistaken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Runs a command line in this process: exit code and stderr."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["earwitness", *words])
        with pytest.raises(SystemExit) as ended:
            command.main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_exit_2(path: tuple[str, ...], mistaken):
    """Named, with no traceback, whatever the command."""
    code, err = mistaken(*path, *_arguments(path), "--no-such-option")

    assert 2 == code
    assert "--no-such-option" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("path", WITH_ARGUMENTS, ids=" ".join)
def test_an_argument_that_is_not_there_is_one_line(
    path: tuple[str, ...], mistaken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A file, folder or name that does not exist: exit code of its kind, and the name said."""
    (tmp_path / "file").write_text("")
    # Below a file: neither there, nor to be made.
    place = str(tmp_path / "file" / "place")
    monkeypatch.chdir(tmp_path)
    code, err = mistaken(*path, *_arguments(path, place))

    assert code in MISTAKES
    assert place in err.replace("\n", "")
    assert "Traceback" not in err
    assert ["file"] == [each.name for each in tmp_path.iterdir()]


def test_an_unknown_command_is_exit_2(mistaken):
    """With what there is."""
    code, err = mistaken("rnu")

    assert 2 == code
    assert "rnu" in err
