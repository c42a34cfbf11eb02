"""`earwitness simulate` and `engine-bench`: figures on stdout, folders that every tool reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.aggregate import summarise_run
from harness.cli.simulate_study import Job, Measured, Study, ladder_rungs
from harness.cli.study_pictures import write_pictures
from harness.cli.study_tables import markdown, sustained
from harness.records import RunKind
from harness.store import open_run
from reference_engine.simulated_summary import PointSummary

SHORT = ("--rates", "5", "--duration", "12", "--cost", "h100-published")


def test_figures_are_labelled_simulated_with_their_table_and_profile(earwitness):
    """Nobody can take them for measurements, and the settings can be found again."""
    code, out, err = earwitness("simulate", *SHORT)

    assert (0, "") == (code, err)
    assert "SIMULATED with the cost table" in out
    assert "measured_by_others" in out
    assert "profile ttfa: hash " in out


def test_the_same_command_prints_the_same_figures(earwitness):
    """A virtual clock has no noise."""
    first, second = (earwitness("simulate", *SHORT, "--json")[1] for _ in range(2))

    assert first == second


def test_a_simulated_folder_is_analysed_by_the_same_definitions(earwitness, tmp_path: Path):
    """metrics.json of the folder and the printed figures agree on n, percentiles and underruns."""
    folder = tmp_path / "run"
    _, out, _ = earwitness(
        "simulate", *SHORT, "--profile", "ttfa", "--profile", "ladder/without-onset-trim",
        "--json", "-o", folder,
    )  # fmt: skip
    metrics = summarise_run(folder)

    printed = {point["point_id"]: point for point in json.loads(out)["points"]}
    assert RunKind.SIMULATED is open_run(folder).record.kind
    for point in metrics["points"]:
        expected, found = printed[point["point_id"]], point["metrics"]["audible_ttfa"]
        assert (expected["num_requests"], "valid") == (point["n"], point["validity"]["verdict"])
        assert expected["p50_ms"] == pytest.approx(found["p50"]["value"])
        assert expected["p95_ms"] == pytest.approx(found["p95"]["value"])
        assert expected["min_slack_ms"] == pytest.approx(
            point["metrics"]["min_slack"]["successes"]["min"]
        )


def test_decisions_about_a_simulated_folder_say_what_it_is(earwitness, tmp_path: Path):
    """Capacity, comparison and gate read it, and none passes it off as measured."""
    folder = tmp_path / "run"
    earwitness("simulate", *SHORT, "-o", folder)
    said = "SIMULATED: a model's numbers, not measurements"

    assert said in earwitness("capacity", folder)[1]
    assert said in earwitness("compare", folder, folder)[1]
    assert said in earwitness("gate", folder)[1]
    assert "simulated" == json.loads(earwitness("gate", folder, "--json")[1])["kind"]
    answers = json.loads(earwitness("capacity", folder, "--json")[1])["answers"]
    assert ["simulated"] == [answer["kind"] for answer in answers]


def test_a_folder_stores_profile_hash_and_cost_table(earwitness, tmp_path: Path):
    """A figure can be traced to the settings and the table behind it."""
    folder = tmp_path / "run"
    earwitness("simulate", *SHORT, "--policy", "round_robin", "-o", folder)

    (engine,) = open_run(folder).record.engines
    assert "ttfa-round_robin" == engine["name"]
    assert "round_robin" == engine["info"]["profile"]["policy"]
    assert 12 == len(engine["info"]["profile_hash"])
    assert "measured_by_others" == engine["info"]["cost_kind"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "ttfaa"], "did you mean 'ttfa'"),
        (["--cost", "a100"], "h100-published, h100-target"),
        (["--policy", "best"], "policy: 'best'"),
        (["--rates", "fast"], "--rates"),
        (["--prompts", "nothing"], "prompts: 'nothing'"),
        (["--max-words", "0", "--rates", "0.0001"], "no request falls into"),
        (["--seeds", str(2**63)], "less than 9223372036854775808"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_two(earwitness, arguments, said):
    """Whatever is wrong, before any work."""
    code, out, err = earwitness("simulate", *arguments)

    assert (2, "", 1) == (code, out, err.count("\n"))
    assert said in err


def test_a_folder_that_exists_is_never_written_into(earwitness, tmp_path: Path):
    """Exit code 6, as for any run, and before anything is simulated."""
    code, _, err = earwitness("simulate", "--cost", "no such table", "-o", tmp_path)

    assert 6 == code
    assert "exists already" in err


@pytest.mark.parametrize("option", ["--profile", "--cost", "--rates", "--seeds", "--policy", "-o"])
def test_a_study_refuses_what_it_would_ignore(earwitness, option: str, tmp_path: Path):
    """It has profiles, rates and seeds of its own."""
    code, _, err = earwitness("simulate", "--study", tmp_path / "study", option, "1")

    assert 2 == code
    assert "a study chooses this itself" in err
    assert not (tmp_path / "study").exists()


def test_engine_bench_prints_turns_per_number_of_streams(earwitness):
    """CPU time of scheduling turns; no torch needed."""
    code, out, _ = earwitness("engine-bench", "--streams", "1,8", "--turns", "50", "--json")

    turns = json.loads(out)["turns"]
    assert (0, [1, 8]) == (code, [each["num_streams"] for each in turns])
    assert all(0 < each["p50_us"] <= each["p99_us"] for each in turns)


# -- study ----------------------------------------------------------------------------------------


def summary(p95_ms: float | None, *, num_underrun: int = 0) -> PointSummary:
    return PointSummary(
        num_requests=100, num_failed=0 if p95_ms else 10, num_heard=100, num_underrun=num_underrun,
        p50_ms=p95_ms and p95_ms / 2, p95_ms=p95_ms, p99_ms=p95_ms, min_slack_ms=20.0,
        mean_concurrent=40.0, device_share=0.5, frame_rows=8.0, num_unfinished=0,
    )  # fmt: skip


def measured(part: str, rate: float, found: PointSummary, **fields: object) -> Measured:
    values = {
        "part": part, "cost": "h100-target", "profile": "ttfa", "policy": "deadline_aware",
        "rate_rps": rate, "seed": 1, "duration_s": 60.0, "prompts": "voice-agent", "max_words": 24,
    }  # fmt: skip
    return Measured(Job(**{**values, **fields}), found)


@pytest.fixture
def study() -> Study:
    points = [measured("curve", rate, summary(10.0 + rate)) for rate in (1, 10)]
    points.append(measured("curve", 20, summary(80.0, num_underrun=3)))
    for policy, p95 in (("deadline_aware", 10.0), ("round_robin", 25.0), ("fcfs", None)):
        points.append(measured("policy", 10, summary(p95), policy=policy))
    for index, rung in enumerate(ladder_rungs()):
        points.append(measured("ladder", 4, summary(500.0 / (index + 1)), profile=rung))
    return Study(points)


def test_tables_give_p95_underruns_and_what_was_not_reached(study):
    """Ratios are other policies over ours."""
    text = markdown(study)

    assert "| `ttfa` | 11.0 | 20.0 | 80.0 (3.0% underrun) |" in text
    assert "| `round_robin` / `deadline_aware` | 2.50 x |" in text
    assert "| `fcfs` | not reached |" in text
    assert "targets: nobody has measured these stage times" in text


def test_how_far_a_profile_goes_ends_at_its_first_flaw(study):
    """10 a second is the last rate without an underrun and below 50 ms."""
    best = sustained(study.of("curve", profile="ttfa"), max_p95_ms=50.0)

    assert best is not None
    assert 10 == best.job.rate_rps


def test_each_cost_table_has_figures_of_its_own(study, tmp_path: Path):
    """Curve, policy, ladder; marked simulated; nothing of another table in them."""
    names = [path.name for path in write_pictures(study, tmp_path)]

    expected = [f"{part}-h100-target.svg" for part in ("curve", "policy", "ladder")]
    assert expected == names
    assert all((tmp_path / name).stat().st_size > 10_000 for name in names)
