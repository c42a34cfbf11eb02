"""A mistake in a file is one line: where, what was found, what was expected, the nearest word."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engines.config_errors import closest, describe, hint, load_yaml, problems, read_yaml


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Poisson(_Model):
    process: Literal["poisson"]
    rates_rps: list[float]


class _Constant(_Model):
    process: Literal["constant"]
    rates_rps: list[float]


class _Phases(_Model):
    warmup_s: float = Field(1.0, gt=0)


class _Engine(_Model):
    contract: str
    params: dict[str, int] = {}


class _Scenario(_Model):
    arrivals: Annotated[_Poisson | _Constant, Field(discriminator="process")]
    phases: _Phases = _Phases()
    engines: list[_Engine] = []
    pacing: Literal["whole", "words"] = "whole"


_GOOD_ARRIVALS = {"process": "poisson", "rates_rps": [1.0]}


def _lines(**document: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        _Scenario.model_validate({"arrivals": _GOOD_ARRIVALS, **document})
    return problems(caught.value, _Scenario, where="burst.yaml")


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (
            {"arrivals": {"process": "possion", "rates_rps": [1]}},
            "burst.yaml: arrivals.process: 'possion' is not one of poisson, constant "
            "(did you mean 'poisson'?)",
        ),
        (
            {"arrivals": {"process": "poisson", "rates_rps": [1, "x"]}},
            "burst.yaml: arrivals.rates_rps[1]: 'x' should be a valid number",
        ),
        (
            {"phases": {"warmpu_s": 2.0}},
            "burst.yaml: phases.warmpu_s: unknown key (did you mean 'warmup_s'?); "
            "known keys: warmup_s",
        ),
        (
            {"phases": {"warmup_s": -1}},
            "burst.yaml: phases.warmup_s: -1 should be greater than 0",
        ),
        (
            {"pacing": "hole"},
            "burst.yaml: pacing: 'hole' is not one of whole, words (did you mean 'whole'?)",
        ),
        (
            {"engines": [{"contract": "nari", "params": {"seed": "7"}}]},
            "burst.yaml: engines[0].params.seed: '7' should be a valid integer",
        ),
        ({"engines": [{}]}, "burst.yaml: engines[0].contract: missing, but required"),
        ({"phases": 3}, "burst.yaml: phases: 3 should be a mapping of keys"),
    ],
)
def test_a_problem_names_path_value_and_expectation(document: dict[str, Any], line: str):
    """One line for each kind of mistake."""
    assert [line] == _lines(**document)


def test_an_unknown_key_in_a_union_member_lists_that_members_keys():
    """The name that pydantic gives the union member is not part of the path."""
    arrivals = {**_GOOD_ARRIVALS, "rates": [1]}

    assert [
        "burst.yaml: arrivals.rates: unknown key (did you mean 'rates_rps'?); "
        "known keys: process, rates_rps"
    ] == _lines(arrivals=arrivals)


def test_a_misspelt_key_is_told_before_the_missing_one():
    """`describe` gives the useful line and the number of the others."""
    with pytest.raises(ValidationError) as caught:
        _Scenario.model_validate({"arrivals": _GOOD_ARRIVALS, "engines": [{"contrct": "nari"}]})

    assert (
        "f.yaml: engines[0].contrct: unknown key (did you mean 'contract'?); "
        "known keys: contract, params (and 1 more)"
    ) == describe(caught.value, _Scenario, where="f.yaml")


def test_a_long_value_is_cut():
    """A whole document as a value does not become the message."""
    (line,) = _lines(pacing="x" * 500)

    assert 200 > len(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2", "f: line 2, column 1: not valid YAML: key 'a' is given twice"),
        ("a: 1\n b: 2", "f: line 2, column 3: not valid YAML: mapping values are not allowed here"),
        ("{[1]: 2}", "f: line 1, column 2: not valid YAML: a key must be a plain word"),
        ("[" * 1000, "f: nested too deeply to be read"),
        (
            "a: &a [" + "x," * 99 + "]\nb: &b [" + "*a," * 99 + "]\nc: [" + "*b," * 99 + "]",
            "f: its aliases stand for 990202 values; write out what is meant",
        ),
        (
            "!!python/object:os.system {}",
            "f: line 1, column 1: not valid YAML: could not determine",
        ),
    ],
)
def test_bad_yaml_is_one_line_with_its_place(text: str, line: str):
    """Line and column of the fault, and no traceback."""
    with pytest.raises(ValueError) as caught:
        load_yaml(text, where="f", error=ValueError)

    assert str(caught.value).startswith(line)
    assert 1 == len(str(caught.value).splitlines())


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path):
    """Absent, a folder, not text."""
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    for name in ("absent.yaml", ".", "latin.yaml"):
        with pytest.raises(ValueError) as caught:
            read_yaml(tmp_path / name, error=ValueError)
        assert str(caught.value).startswith(str(tmp_path))
        assert 1 == len(str(caught.value).splitlines())


def test_the_closest_word_ignores_case_and_gives_up_on_strangers():
    """A suggestion that is no suggestion is worse than none."""
    assert "Poisson" == closest("POISON", ["Poisson", "constant"])
    assert "" == hint("zebra", ["poisson", "constant"])
