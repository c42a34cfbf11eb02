"""No command answers a user's mistake with a traceback: every one of them is tried with some."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

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


def _command(path: tuple[str, ...]) -> Any:
    node: Any = typer.main.get_command(command.app)
    for word in path:
        node = node.commands[word]
    return node


def _params(path: tuple[str, ...]) -> list[Any]:
    return list(_command(path).params)


def _arguments(path: tuple[str, ...], value: str = "x") -> list[str]:
    """The same value for each argument of a command."""
    return [value for p in _params(path) if p.param_type_name == "argument"]


def _numbers(path: tuple[str, ...]) -> list[str]:
    """Options of a command whose default is a number."""
    return [
        p.opts[0]
        for p in _params(path)
        if p.param_type_name == "option"
        and isinstance(p.default, int | float)
        and not isinstance(p.default, bool)
    ]


def _real_numbers(path: tuple[str, ...]) -> list[str]:
    """Options of a command that take a number with a fraction."""
    hints = get_type_hints(inspect.unwrap(_command(path).callback))
    names = [name for name, hint in hints.items() if hint in (float, float | None)]
    return [p.opts[0] for p in _params(path) if p.name in names]


COMMANDS = sorted(_leaves(typer.main.get_command(command.app)))
# Those under `serve` become another process, which has tests of its own.
WITH_ARGUMENTS = [path for path in COMMANDS if _arguments(path) and path[0] != "serve"]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_exit_2(path: tuple[str, ...], earwitness):
    """Named, with no traceback, whatever the command."""
    code, _, err = earwitness(*path, *_arguments(path), "--no-such-option")

    assert 2 == code
    assert "--no-such-option" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("path", WITH_ARGUMENTS, ids=" ".join)
def test_an_argument_that_is_not_there_is_one_line(
    path: tuple[str, ...], earwitness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A file, folder or name that does not exist: exit code of its kind, and the name said."""
    (tmp_path / "file").write_text("")
    # Below a file: neither there, nor to be made.
    place = str(tmp_path / "file" / "place")
    monkeypatch.chdir(tmp_path)
    code, _, err = earwitness(*path, *_arguments(path, place))

    assert code in MISTAKES
    assert place in err.replace("\n", "")
    assert "Traceback" not in err
    assert ["file"] == [each.name for each in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("path", "option"),
    [(path, option) for path in COMMANDS for option in _numbers(path)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_word_in_place_of_a_number_is_exit_2(path: tuple[str, ...], option: str, earwitness):
    """The option is named; nothing is started."""
    code, _, err = earwitness(*path, *_arguments(path), option, "many")

    assert 2 == code
    assert option in err
    assert "Traceback" not in err


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    ("path", "option"),
    [(path, option) for path in COMMANDS for option in _real_numbers(path)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_is_no_finite_number_is_exit_2(
    path: tuple[str, ...], option: str, value: str, earwitness
):
    """Ranges let "not a number" through, so every option refuses it by itself."""
    code, _, err = earwitness(*path, *_arguments(path), option, value)

    assert 2 == code
    assert option in err
    assert "Traceback" not in err


def _garbage(tmp_path: Path, kind: str) -> Path:
    """Something that exists and is not what any command wants."""
    place = tmp_path / "place"
    if kind == "file":
        place.write_bytes(b"\xff\xfe\x00: [\n\x00" * 20)
    else:
        place.mkdir()
        (place / "run.json").write_text({"folder": "{}", "newer": '{"schema_version": 99}'}[kind])
    return place


# These make a folder of this name, or ask whoever is named for an answer.
_READ_NOTHING = {("checkpoint", "make"), ("view",)}
READERS = [path for path in WITH_ARGUMENTS if path not in _READ_NOTHING]


@pytest.mark.parametrize("kind", ["file", "folder", "newer"])
@pytest.mark.parametrize("path", READERS, ids=" ".join)
def test_garbage_is_refused_in_words(path: tuple[str, ...], kind: str, earwitness, tmp_path: Path):
    """A binary file, a damaged run folder, one of a later version: an exit code of its kind."""
    code, _, err = earwitness(*path, *_arguments(path, str(_garbage(tmp_path, kind))))

    assert code in MISTAKES
    assert "place" in err.replace("\n", "")
    assert "Traceback" not in err


def test_an_unknown_command_is_exit_2(earwitness):
    """With what there is."""
    code, _, err = earwitness("rnu")

    assert 2 == code
    assert "rnu" in err
