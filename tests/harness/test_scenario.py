"""Scenario files: strict, with a path and a suggestion for every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.http_contract import CONTRACTS_FOLDER
from harness.errors import ScenarioError
from harness.scenario import bundled_scenarios, load_scenario, parse_scenario
from harness.schedule import build_schedule
from tests.builders.runs import scenario, scenario_data


def _file(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return path


def _with(key: str, value: Any) -> dict[str, Any]:
    """The test scenario with one dotted key set, unknown or not."""
    data = scenario_data()
    inner = data
    *parents, last = key.split(".")
    for name in parents:
        inner[name] = dict(inner.get(name, {}))
        inner = inner[name]
    inner[last] = value
    return data


@pytest.mark.parametrize("name", bundled_scenarios())
def test_every_bundled_scenario_can_be_planned(name: str):
    """Each loads by its name, and its first point has a plan."""
    given = load_scenario(name)
    point = given.points()[0]

    assert name == given.name
    assert build_schedule(given, rate_rps=point.rate_rps, seed=point.seed).num_measured > 0


def test_a_misspelt_process_is_answered_with_the_right_word(tmp_path: Path):
    """File, path, what was found, what there is, what was probably meant."""
    path = _file(tmp_path, _with("arrivals.process", "possion"))

    with pytest.raises(ScenarioError) as refused:
        load_scenario(path)
    assert (
        f"{path}: arrivals.process: 'possion' is not one of constant, poisson, trace "
        "(did you mean 'poisson'?)"
    ) == str(refused.value)
    assert 2 == refused.value.exit_code


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("arivals", {}, r"arivals: unknown key \(did you mean 'arrivals'\?\)"),
        ("arrivals.rate_rps", [1], r"arrivals\.rate_rps: unknown key \(did you mean 'rates_rps'"),
        ("phases.warm_up_s", 1, r"phases\.warm_up_s: unknown key"),
        ("arrivals.rates_rps", [0], r"arrivals\.rates_rps\[0\]: 0\D.*greater than 0"),
        ("arrivals.rates_rps", [1, -2], r"arrivals\.rates_rps\[1\]: -2"),
        ("arrivals.rates_rps", [float("nan")], r"arrivals\.rates_rps\[0\]"),
        ("arrivals.rates_rps", [float("inf")], r"arrivals\.rates_rps\[0\]"),
        ("arrivals.rates_rps", ["2"], r"arrivals\.rates_rps\[0\]: '2'"),
        ("arrivals.rates_rps", 2, r"arrivals\.rates_rps: 2"),
        ("arrivals.rates_rps", [], r"arrivals\.rates_rps"),
        ("arrivals.rates_rps", [1, 1.0], r"arrivals\.rates_rps: 1\.0 is given twice"),
        ("arrivals.seeds", [1.5], r"arrivals\.seeds\[0\]"),
        ("arrivals.seeds", [-1], r"arrivals\.seeds\[0\]"),
        ("arrivals.seeds", [True], r"arrivals\.seeds\[0\]"),
        ("arrivals.trace_file", "x.txt", r"process is poisson, not trace"),
        ("arrivals.count", "exact", r"arrivals\.count: 'exact' is not one of random, expected"),
        (
            "arrivals",
            {"process": "constant", "count": "expected", "rates_rps": [1]},
            r"arrivals: count: expected is for process poisson, found constant",
        ),
        ("arrivals.process", "trace", r"process trace needs trace_file"),
        ("phases.measure_s", 0, r"phases\.measure_s"),
        ("phases.drain_s", -1, r"phases\.drain_s"),
        ("phases.measure_s", 1e300, r"phases\.measure_s: 1e\+300 .* equal to 100000000"),
        ("timeouts.total_s", 1e11, r"timeouts\.total_s"),
        ("engines", [], r"engines"),
        ("engines", [{"contract": "fake", "base_url": "no address"}], r"engines\[0\]\.base_url"),
        ("engines", [{"contract": "fake"}, {"contract": "fake"}], r"engines\[1\]: a second 'fake'"),
        ("engines", [{"base_url": "http://x"}], r"engines\[0\]\.contract: missing"),
        ("name", "two words", r"name: 'two words'"),
        ("prompts.order", "random", r"prompts\.order: 'random' is not one of shuffled, sequential"),
        ("text_pacing", {"mode": "words"}, r"text_pacing: mode words needs rate_per_s"),
        ("text_pacing", {"mode": "words", "rate_per_s": 1e-9}, r"text_pacing\.rate_per_s"),
        ("text_pacing", {"rate_per_s": 3}, r"text_pacing: rate_per_s is given, but mode is whole"),
        ("behaviour.cancel", {"share": 1.5, "after_s": 1}, r"behaviour\.cancel\.share"),
        ("behaviour.cancel", {"share": 0.5}, r"cancel needs after_s or after_audio_bytes"),
        ("timeouts.total_s", 0, r"timeouts\.total_s"),
        ("retries.max", -1, r"retries\.max"),
        ("limits.max_in_flight", 0, r"limits\.max_in_flight"),
        ("connections.mode", "hot", r"connections\.mode: 'hot' is not one of warm, cold"),
        ("connections.tls", {"key_file": "k"}, r"connections\.tls: key_file .* without cert_file"),
        ("recording.audio", "some", r"'some' is not one of all, none, head:<seconds>"),
        ("recording.audio", "sample:2", r"sample:2 is more than 1"),
        ("authorization", {"host": "x"}, r"authorization\.\w+: missing"),
        ("schema", 2, r"schema: 2 is newer than 1"),
        ("schema", 0, r"schema: 0"),
        ("thresholds", {"p95": 1}, r"thresholds: unknown key"),
    ],
)
def test_a_mistake_is_one_line_with_its_path(key: str, value: Any, complaint: str, tmp_path: Path):
    """Unknown keys, wrong types, impossible values: never a traceback, never a default instead."""
    with pytest.raises(ScenarioError, match=complaint) as refused:
        load_scenario(_file(tmp_path, _with(key, value)))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"),
        ("- a\n- b\n", "expected a mapping"),
        ("schema: 1\nschema: 1\n", "'schema' is given twice"),
        ("arrivals: [", "not valid YAML"),
        ("a: &x [*x]\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_mapping_is_one_line(content: str, complaint: str, tmp_path: Path):
    """Broken YAML says where it breaks."""
    with pytest.raises(ScenarioError, match=complaint):
        load_scenario(_file(tmp_path, content))


def test_an_unknown_scenario_lists_the_bundled_ones():
    """A name that is no file is looked up among those that come with the package."""
    with pytest.raises(ScenarioError, match=r"neither a file nor one of .*did you mean 'quick'"):
        load_scenario("qick")


def test_overrides_reach_deep_keys_and_are_checked_like_the_file(tmp_path: Path):
    """A value from the command line replaces the file's, and its mistakes carry its path."""
    path = _file(tmp_path, scenario_data())

    given = load_scenario(path, overrides={"phases.measure_s": 7.0, "timeouts.total_s": 3.0})
    assert (7.0, 3.0, 1.0) == (
        given.phases.measure_s,
        given.timeouts.total_s,
        given.phases.warmup_s,
    )
    with pytest.raises(ScenarioError, match=r"phases\.measure_s"):
        load_scenario(path, overrides={"phases.measure_s": -1})
    with pytest.raises(ScenarioError, match=r"name\.x: found .test., which has no key"):
        load_scenario(path, overrides={"name.x": 1})


def test_overrides_reach_into_lists(tmp_path: Path):
    """A number in the path counts items from 0, spelled either way; one too many is named."""
    path = _file(tmp_path, scenario_data(engines=[{"contract": "a"}, {"contract": "b"}]))

    for key in ("engines.1.params.voice", "engines[1].params.voice"):
        given = load_scenario(path, overrides={key: "joe"})
        assert [{}, {"voice": "joe"}] == [engine.params for engine in given.engines]
    with pytest.raises(ScenarioError, match=r"engines\.2\.params: '2' is not one of the 2 items"):
        load_scenario(path, overrides={"engines.2.params": {}})


@pytest.mark.parametrize(
    ("address", "likely"),
    [
        ("127.0.0.1:8123", "http://127.0.0.1:8123"),
        ("tts.example/v1", "http://tts.example/v1"),
        ("http:/x", "http://127.0.0.1:8000"),
        ("", "http://127.0.0.1:8000"),
    ],
)
def test_an_address_without_a_scheme_is_told_in_words(address: str, likely: str):
    """Not by a pattern; with the address that was probably meant."""
    with pytest.raises(ScenarioError) as refused:
        scenario({"engines.0.base_url": address})

    assert (
        f"test.yaml: engines[0].base_url: {address!r} starts with no http://, ws:// or the like "
        f"and a host; write an address such as {likely}"
    ) == str(refused.value)


def test_a_mistake_of_an_option_is_blamed_on_the_option():
    """What the option gave names it; what the file gave names the file; further in counts more."""
    options = {"phases.measure_s": "--duration", "engines.0": "--x", "engines[0].name": "--y"}

    def complaint(key: str, value: Any) -> str:
        with pytest.raises(ScenarioError) as refused:
            parse_scenario(
                scenario_data(),
                where="a.yaml",
                base_dir=Path(),
                overrides={key: value},
                options=options,
            )
        return str(refused.value)

    assert complaint("phases.measure_s", -3).startswith("--duration: phases.measure_s: -3 should")
    assert complaint("phases.warmup_s", -3).startswith("a.yaml: phases.warmup_s: -3 should")
    assert complaint("engines[0].contract", 1).startswith("--x: engines[0].contract: 1")
    assert complaint("engines.0.name", 1).startswith("--y: engines[0].name: 1")


def test_paths_in_a_scenario_are_relative_to_its_file(tmp_path: Path):
    """A run may start anywhere; bare names stay names."""
    data = scenario_data(
        engines=[{"contract": "my.yaml"}],
        prompts={"set": "texts/mine.txt"},
        connections={"tls": {"ca_file": "ca.pem"}},
    )
    given = load_scenario(_file(tmp_path, data))

    assert (
        str(tmp_path / "my.yaml"),
        str(tmp_path / "texts" / "mine.txt"),
        str(tmp_path / "ca.pem"),
    ) == (given.engines[0].contract, given.prompts.set, given.connections.tls.ca_file)
    assert "voice-agent" == scenario().prompts.set


def test_every_engine_takes_its_turn_at_each_rate():
    """Engines alternate, so that a drift of the machine meets them alike."""
    given = scenario(
        engines=[{"contract": "a"}, {"contract": "b"}],
        arrivals={"rates_rps": [1, 2.5], "seeds": [7]},
    )

    assert ["a-r1-s7", "b-r1-s7", "a-r2.5-s7", "b-r2.5-s7"] == [
        point.point_id for point in given.points()
    ]


def test_resolved_values_build_the_same_scenario_again(tmp_path: Path):
    """What is stored with a run is a complete scenario file, defaults written out."""
    given = scenario()

    assert given == load_scenario(_file(tmp_path, given.resolved()))


def test_an_engine_given_by_a_file_is_called_as_its_contract(tmp_path: Path):
    """Not as the file: points, reports and comparisons then name what was measured."""
    text = (
        (CONTRACTS_FOLDER / "generic.yaml").read_text().replace("name: generic", "name: acme-one")
    )
    (tmp_path / "acme_one_draft.yaml").write_text(text)
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(scenario_data(engines=[{"contract": "acme_one_draft.yaml"}])))

    assert ["acme-one"] == [engine.label for engine in load_scenario(path).engines]
    assert "acme-one" == load_scenario(path).resolved()["engines"][0]["name"]
