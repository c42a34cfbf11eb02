"""What is to be said: the bundled prompt sets and a user's own lists.

A list is a text file with one prompt a line, either plain (`text`) or piped (`id|...|text`: the
first field is the id, the last the text; a single field between them holds comma-separated tags).
Lines that begin with `# ` are comments. A `.yaml` list (`prompts: [{id, tags, text, repeat}]`)
exists for texts that do not fit in a line. The file's sha256 is kept with every run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from harness.config_errors import hint, load_yaml, validate
from harness.errors import ScenarioError

__all__ = ["Prompt", "PromptSet", "bundled_sets", "load_prompts"]

_SETS_DIR = Path(__file__).parent / "prompt_sets"
_SUFFIXES = (".txt", ".yaml")
_COMMENT = "# "
_TAGS_REMEDY = "the scenario's prompts.tags asks for it; --set 'prompts.tags=[]' takes every prompt"
_TAGS = re.compile(r"[a-z0-9][a-z0-9_-]*(,[a-z0-9][a-z0-9_-]*)*")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text to be spoken, exactly as it is sent."""

    id: str
    text: str
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts in file order. `name` is the bundled name or the path as given."""

    name: str
    sha256: str
    prompts: tuple[Prompt, ...]
    _by_id: Mapping[str, Prompt] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {prompt.id: prompt for prompt in self.prompts})

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, prompt_id: str) -> Prompt:
        """The prompt of that id; KeyError where there is none."""
        return self._by_id[prompt_id]


def bundled_sets() -> tuple[str, ...]:
    """Names of the sets that come with the package."""
    return tuple(sorted(path.stem for path in _SETS_DIR.iterdir() if path.suffix in _SUFFIXES))


def load_prompts(name_or_path: str | Path, *, tags: Sequence[str] = ()) -> PromptSet:
    """Read a prompt set; only prompts that carry all of `tags` are kept.

    Args:
        name_or_path: a bundled name (`voice-agent`), or a file (`.txt` or anything else: lines;
            `.yaml`: texts that hold line breaks).
        tags: for example `wer`, `short`.

    Raises:
        ScenarioError: no such set or file, no prompt in it, an empty text, an id used twice, a
            tag that no prompt carries; the message names the line.
    """
    path = _find(name_or_path)
    content = _read(path)
    where = str(name_or_path)
    text = _decode(content, where)
    is_yaml = path.suffix in (".yaml", ".yml")
    prompts = _parse_yaml(text, where) if is_yaml else _parse_lines(text, where)
    if not prompts:
        raise ScenarioError(f"{where}: holds no prompt; write one text a line")
    chosen = _with_tags(prompts, tags, where)
    return PromptSet(where, hashlib.sha256(content).hexdigest(), chosen)


def _find(name_or_path: str | Path) -> Path:
    name = str(name_or_path)
    for suffix in _SUFFIXES:
        bundled = _SETS_DIR / f"{name}{suffix}"
        if bundled.parent == _SETS_DIR and bundled.is_file():
            return bundled
    path = Path(name_or_path).expanduser()
    if path.exists():
        return path
    known = bundled_sets()
    raise ScenarioError(
        f"prompts: {name!r} is neither a file nor one of {', '.join(known)}{hint(name, known)}"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise ScenarioError(f"{path}: cannot be read: {fault.strerror or fault}") from None


def _decode(content: bytes, where: str) -> str:
    try:
        # -sig: an editor's byte order mark is not to be spoken.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = content[: fault.start].count(b"\n") + 1
        raise ScenarioError(f"{where}: line {line}: is not UTF-8 text") from None


# -- lines -----------------------------------------------------------------------------------------


def _parse_lines(text: str, where: str) -> list[Prompt]:
    # Not splitlines(): that would also cut at form feeds and other characters inside a text.
    numbered = [(n, line.rstrip("\r")) for n, line in enumerate(text.split("\n"), start=1)]
    kept = [(n, line) for n, line in numbered if line.strip() and not line.startswith(_COMMENT)]
    odd = _first_odd_line(kept)
    if odd is not None:
        raise ScenarioError(
            f"{where}: line {odd}: some lines are `id|...|text` and some are plain; use one form"
        )
    is_piped = bool(kept) and "|" in kept[0][1]
    prompts = [
        _piped(line, f"{where}: line {n}") if is_piped else Prompt(f"line-{n}", line.strip())
        for n, line in kept
    ]
    _refuse_repeated_ids(prompts, [f"line {n}" for n, _ in kept], where)
    return prompts


def _first_odd_line(kept: Sequence[tuple[int, str]]) -> int | None:
    return next((n for n, line in kept if ("|" in line) != ("|" in kept[0][1])), None)


def _piped(line: str, where: str) -> Prompt:
    fields = line.split("|")
    prompt_id, text = fields[0].strip(), fields[-1].strip()
    if not prompt_id or not text:
        missing = "id" if not prompt_id else "text"
        raise ScenarioError(f"{where}: the {missing} is empty, expected `id|...|text`")
    middle = fields[1].strip() if len(fields) == 3 else ""
    tags = frozenset(middle.split(",")) if _TAGS.fullmatch(middle) else frozenset()
    return Prompt(prompt_id, text, tags)


# -- YAML ------------------------------------------------------------------------------------------


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    id: Annotated[str, Field(min_length=1)]
    text: Annotated[str, Field(min_length=1)]
    tags: tuple[str, ...] = ()
    # The text is said this many times over; keeps a very long text readable in its file.
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 1


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    prompts: tuple[_Entry, ...]


def _parse_yaml(text: str, where: str) -> list[Prompt]:
    data = load_yaml(text, where=where, error=ScenarioError)
    parsed = validate(_File, data, where=where, error=ScenarioError)
    prompts = [Prompt(e.id, e.text * e.repeat, frozenset(e.tags)) for e in parsed.prompts]
    _refuse_repeated_ids(prompts, [f"prompts[{n}]" for n in range(len(prompts))], where)
    return prompts


# -- both ------------------------------------------------------------------------------------------


def _refuse_repeated_ids(prompts: Iterable[Prompt], places: Sequence[str], where: str) -> None:
    first_at: dict[str, str] = {}
    for prompt, place in zip(prompts, places, strict=True):
        if prompt.id in first_at:
            raise ScenarioError(
                f"{where}: {place}: id {prompt.id!r} is used by {first_at[prompt.id]} already"
            )
        first_at[prompt.id] = place


def _with_tags(prompts: Sequence[Prompt], tags: Sequence[str], where: str) -> tuple[Prompt, ...]:
    known = sorted({tag for prompt in prompts for tag in prompt.tags})
    for tag in tags:
        if tag not in known:
            listed = ", ".join(known) or "none"
            raise ScenarioError(
                f"{where}: no prompt carries the tag {tag!r}{hint(tag, known)}; its tags: {listed}"
                f"; {_TAGS_REMEDY}"
            )
    chosen = tuple(prompt for prompt in prompts if prompt.tags.issuperset(tags))
    if not chosen:
        raise ScenarioError(
            f"{where}: no prompt carries all of the tags {', '.join(tags)}; {_TAGS_REMEDY}"
        )
    return chosen
