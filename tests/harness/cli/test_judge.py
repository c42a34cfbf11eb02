"""`earwitness compare`, `gate`, `baseline` and `capacity`: what is printed, and every exit code."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.builders.servers import ScriptedServer
from tests.builders.sweeps import gamma_engine, sweep
from tests.builders.voices import short_run_file, voice


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A run of a fast and a slow engine, and one of each alone."""
    folder = tmp_path_factory.mktemp("runs")
    fast = gamma_engine(mean_ms=40, num_requests=80, salt=1)
    slow = gamma_engine(mean_ms=90, num_requests=80, salt=2)
    return {
        "both": sweep(folder, {"slow": slow, "fast": fast}, name="both"),
        "before": sweep(folder, {"tts": fast}, name="before"),
        "after": sweep(folder, {"tts": slow}, name="after"),
        "rates": sweep(
            folder,
            {"tts": lambda rate, seed: gamma_engine(mean_ms=30 * rate)(rate, seed)},
            rates_rps=(1.0, 2.0, 4.0),
            name="rates",
        ),
    }


def rules_file(tmp_path: Path, *rules: str) -> Path:
    path = tmp_path / "rules.yaml"
    lines = "".join(f"  - {{{rule}}}\n" for rule in rules)
    path.write_text(f"schema: 1\nname: test\nrules:\n{lines}")
    return path


# -- compare --------------------------------------------------------------------------------------


def test_compare_says_who_wins_and_prints_a_table(earwitness, runs):
    """Two engines of one run: one sentence, then a row a metric."""
    code, out, _ = earwitness("compare", runs["both"])
    rows = [line.split() for line in out.splitlines()]

    assert 0 == code
    assert out.startswith("fast is heard sooner than slow at 2/s (p95 by")
    assert [["p95", "audible_ttfa", "2/s"]] == [
        row[:3] for row in rows if row[:2] == ["p95", "audible_ttfa"]
    ]


def test_compare_gives_json_and_writes_markdown(earwitness, runs, tmp_path):
    """JSON on stdout, the table in the file."""
    code, out, err = earwitness(
        "compare", runs["before"], runs["after"], "--json", "-o", tmp_path / "c.md"
    )
    found = json.loads(out)

    assert (0, ["before:tts", "after:tts"]) == (code, found["contenders"])
    assert "worse" in {d["finding"] for d in found["rates"][0]["differences"]}
    assert "| p95 audible_ttfa |" in (tmp_path / "c.md").read_text()
    assert "c.md" in err


def test_compare_reads_runs_under_another_rule_without_touching_them(earwitness, runs):
    """What if the player waited 200 ms: both are later, the difference stays."""
    _, plain, _ = earwitness("compare", runs["both"], "--json")
    code, out, _ = earwitness("compare", runs["both"], "--json", "--start", "delay_ms=200")
    p50s = [json.loads(text)["rates"][0]["differences"][0] for text in (plain, out)]

    assert 0 == code
    assert 200 == pytest.approx(p50s[1]["first"]["value"] - p50s[0]["first"]["value"])
    assert p50s[0]["difference"]["value"] == pytest.approx(p50s[1]["difference"]["value"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("before",), "needs two"),
        (("before", "--onset", "nari"), "did you mean 'nari-v1'"),
        (("both", "--start", "soon"), "no start rule"),
    ],
)
def test_comparison_that_cannot_be_made_is_one_line(earwitness, runs, arguments, words):
    """Exit code 2."""
    code, out, err = earwitness("compare", runs[arguments[0]], *arguments[1:])

    assert (2, "", 1) == (code, out, len(err.strip().splitlines()))
    assert words in err


def test_comparison_of_what_is_no_run_is_one_line(earwitness, tmp_path):
    """Exit code 6 for a folder, 2 for a file."""
    (tmp_path / "file").write_text("x")

    assert 6 == earwitness("compare", tmp_path)[0]
    assert 2 == earwitness("compare", tmp_path / "file")[0]


# -- gate and baseline ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "code", "word"), [(500, 0, "pass"), (5, 1, "FAIL"), (113, 3, "inconclusive")]
)
def test_gate_exits_by_its_verdict(earwitness, runs, tmp_path, limit, code, word):
    """p95 of about 112 ms, with 113 inside its interval."""
    rules = rules_file(tmp_path, f"metric: audible_ttfa, statistic: p95, max: {limit}")
    found, out, _ = earwitness("gate", runs["after"], "--rules", rules)

    assert code == found
    assert out.startswith(f"gate test: {word}")


def test_gate_writes_for_ci(earwitness, runs, tmp_path):
    """JUnit anew, the step summary appended, JSON on stdout."""
    rules = rules_file(tmp_path, "metric: audible_ttfa, statistic: p95, max: 5")
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    code, out, _ = earwitness(
        "gate", runs["after"], "--rules", rules, "--json",
        "--junit", tmp_path / "junit.xml", "--summary", summary,
    )  # fmt: skip

    assert (1, "fail") == (code, json.loads(out)["verdict"])
    assert "1" == ElementTree.parse(tmp_path / "junit.xml").getroot().get("failures")
    assert summary.read_text().startswith("before\n## Gate test: FAIL")


def test_baseline_keeps_what_a_later_gate_needs(earwitness, runs, tmp_path):
    """The same run again passes, the slower one fails, a second baseline is not written."""
    base = tmp_path / "base.json"
    wrote = earwitness("baseline", runs["before"], "-o", base)
    rules = ("--rules", "no-regression", "--against", base)

    assert 0 == wrote[0]
    assert "1 point, 80 requests" in wrote[2]
    assert 0 == earwitness("gate", runs["before"], *rules)[0]
    assert 1 == earwitness("gate", runs["after"], *rules)[0]
    assert 6 == earwitness("baseline", runs["before"], "-o", base)[0]


def test_baseline_says_in_json_what_it_holds(earwitness, runs, tmp_path):
    """For scripts: the file and its points on stdout."""
    base = tmp_path / "base.json"
    code, out, _ = earwitness("baseline", runs["before"], "-o", base, "--json")
    told = json.loads(out)

    assert (0, str(base), 80) == (code, told["baseline"], told["num_requests"])
    assert [(80, False)] == [(point["n"], point["is_invalid"]) for point in told["points"]]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("no-regression", "--against"),
        ("voice-agnet", "did you mean 'voice-agent'"),
    ],
)
def test_gate_without_what_it_needs_is_one_line(earwitness, runs, rules, words):
    """Exit code 2."""
    code, out, err = earwitness("gate", runs["before"], "--rules", rules)

    assert (2, "", 1) == (code, out, len(err.strip().splitlines()))
    assert words in err


def test_report_of_a_gate_that_cannot_be_written_is_one_line(earwitness, runs, tmp_path):
    """The folder does not exist."""
    rules = rules_file(tmp_path, "metric: audible_ttfa, statistic: p95, max: 500")
    code, _, err = earwitness(
        "gate", runs["before"], "--rules", rules, "--junit", tmp_path / "no" / "junit.xml"
    )

    assert (6, 1) == (code, len(err.strip().splitlines()))


# -- capacity -------------------------------------------------------------------------------------


def slo_file(tmp_path: Path, p95_ms: float) -> Path:
    path = tmp_path / "slo.yaml"
    path.write_text(f"schema: 1\naudible_ttfa_p95_ms: {p95_ms}\n")
    return path


def test_capacity_of_a_finished_sweep_is_read(earwitness, runs, tmp_path):
    """About 40, 80 and 160 ms at 1, 2 and 4 per second; the limit is 100."""
    code, out, _ = earwitness("capacity", runs["rates"], "--slo", slo_file(tmp_path, 100))

    assert 0 == code
    assert out.startswith("tts: capacity between 2 and 4 requests/s")
    assert "p95 audible TTFA ≤ 100 ms" in out


def test_capacity_as_json(earwitness, runs, tmp_path):
    """The interval and the curve."""
    _, out, _ = earwitness("capacity", runs["rates"], "--slo", slo_file(tmp_path, 1000), "--json")
    (answer,) = json.loads(out)["answers"]

    assert ("above_all", 4.0, None) == (answer["status"], answer["lo_rps"], answer["hi_rps"])
    assert [1, 1, 1] == [point["num_met"] for point in answer["curve"]]


def test_capacity_says_what_it_costs_where_a_price_is_given(earwitness, runs, tmp_path):
    """By what was sent, whatever the point is called: 20/s of 12 characters ("Hello there.") are
    864,000 an hour; 4.32 an hour is 5 per million."""
    slo = ("--slo", slo_file(tmp_path, 100))
    _, out, _ = earwitness("capacity", runs["rates"], *slo, "--price-per-hour", 4.32)
    _, stored, _ = earwitness("capacity", runs["rates"], *slo, "--list-price", 15, "--json")

    assert "there it costs 5 USD per million characters" in out
    assert "20 requests/s each of 12 characters, 100 % utilisation" in out
    assert 15.0 == json.loads(stored)["answers"][0]["cost"]["per_million_characters"]


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("capacity", "--price-per-hour", "-1"),
        ("capacity", "--list-price", "0"),
        ("capacity", "--utilisation", "0"),
        ("capacity", "--utilisation", "1.5"),
        ("capacity", "--replicas", "0"),
        ("capacity", "--spare", "-1"),
        ("report", "--price-per-hour", "0"),
    ],
)
def test_impossible_price_is_refused(earwitness, runs, command, option, value):
    """Exit code 2, with the option's name, wherever a cost is asked for."""
    code, _, err = earwitness(command, runs["rates"], option, value)

    assert 2 == code
    assert option in err
    assert "Traceback" not in err


def test_capacity_of_one_engine_of_a_sweep(earwitness, runs):
    """Chosen by name; another name is one line with the known ones."""
    _, out, _ = earwitness("capacity", runs["both"], "--engine", "fast", "--json")
    code, _, err = earwitness("capacity", runs["both"], "--engine", "fats")

    assert ["fast"] == [answer["engine"] for answer in json.loads(out)["answers"]]
    assert (2, 1) == (code, len(err.strip().splitlines()))
    assert "'fats' is not one of slow, fast (did you mean 'fast'?)" in err


@pytest.mark.parametrize(
    "option",
    [
        ("-o", "new"),
        ("--base-url", "http://h"),
        ("--start-rate", "2"),
        ("--set", "a=1"),
        ("--voice", "nova"),
        ("--param", "speed=2"),
    ],
)
def test_what_only_a_search_uses_is_refused_beside_a_finished_run(earwitness, runs, option):
    """Not ignored."""
    code, _, err = earwitness("capacity", runs["both"], *option)

    assert (2, 1) == (code, len(err.strip().splitlines()))
    assert f"{option[0]}: " in err


@pytest.mark.slow
def test_capacity_of_an_engine_is_searched_under_load(earwitness, tmp_path):
    """A voice that answers at once meets it at the highest rate that was allowed, and was asked
    for what the options say.
    """
    with ScriptedServer(voice()) as server:
        scenario = short_run_file(tmp_path, server.base_url)
        code, out, err = earwitness(
            "capacity", scenario, "--slo", slo_file(tmp_path, 5000), "-o", tmp_path / "search",
            "--start-rate", 2, "--max-rate", 2, "--agree", 1, "--requests", 2, "--json",
            "--voice", "nova", "--param", "speed=1.5",
        )  # fmt: skip
        asked = [json.loads(request.body) for request in server.requests if request.body]
    (answer,) = json.loads(out)["answers"]

    assert (0, "above_all", 2.0) == (code, answer["status"], answer["lo_rps"]), err
    assert {("nova", 1.5)} == {(one["voice"], one["speed"]) for one in asked}
    assert "r2-s1" in {path.name for path in (tmp_path / "search").iterdir()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("quick",), "-o"),
        (("quick", "-o", "new", "--start-rate", "5", "--max-rate", "1"), "highest"),
        (("quik",), "did you mean 'quick'"),
    ],
)
def test_search_that_cannot_begin_is_one_line(earwitness, tmp_path, monkeypatch, arguments, words):
    """Exit code 2, before anything is sent."""
    monkeypatch.chdir(tmp_path)
    code, out, err = earwitness("capacity", *arguments)

    assert (2, "", 1) == (code, out, len(err.strip().splitlines()))
    assert words in err
