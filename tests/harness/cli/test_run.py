"""`earwitness run`, `schedule` and `recover`: what is printed where, and every exit code."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.records import RunStatus
from harness.store import open_run
from tests.builders.servers import ScriptedServer, ok, refusal
from tests.builders.voices import short_run_file, voice

ROOT = Path(__file__).resolve().parents[3]
_COMMAND = "from harness.cli.main import main; main()"


# -- schedule --------------------------------------------------------------------------------------


def test_a_dry_run_counts_requests_and_characters(earwitness, tmp_path: Path):
    """JSON on stdout: points with their counts, an estimate for each host."""
    path = short_run_file(tmp_path, "http://127.0.0.1:9")
    code, out, err = earwitness("schedule", path, "--json", "--arrivals")

    [point] = json.loads(out)["points"]
    [estimate] = json.loads(out)["estimates"]
    assert (0, "") == (code, err)
    assert (2, 6, 20.0) == (point["num_warmup"], point["num_measured"], point["planned_rps"])
    assert [n * 0.05 for n in range(8)] == pytest.approx([a["at_s"] for a in point["arrivals"]])
    assert (8, point["num_characters"]) == (estimate["num_requests"], estimate["num_characters"])


def test_a_dry_run_needs_neither_key_nor_engine(earwitness, monkeypatch: pytest.MonkeyPatch):
    """A contract whose key is not set can be planned; what a run would be refused for is said."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, out, _ = earwitness("schedule", "quick", "--engine", "openai", "--rates", "4")

    assert 0 == code
    assert "would be refused: api.openai.com is a public host" in " ".join(out.split())


def test_options_change_the_plan(earwitness):
    """Rates, seeds, duration and any key by `--set`."""
    options = ("--rates", "1,2", "--seeds", "3,4", "--duration", "10", "--set", "phases.warmup_s=0")
    code, out, _ = earwitness("schedule", "quick", "--json", *options)

    points = json.loads(out)["points"]
    assert 0 == code
    assert [(1.0, 3), (2.0, 3), (1.0, 4), (2.0, 4)] == [(p["rate_rps"], p["seed"]) for p in points]
    assert {0} == {p["num_warmup"] for p in points}


def test_prompts_of_ones_own_may_carry_no_tags(earwitness, tmp_path: Path):
    """The message names the setting that asks for tags and the option that lifts it; that works."""
    (tmp_path / "mine.txt").write_text("Hello there.\n")
    words = ("schedule", "quick", "--set", f"prompts.set={tmp_path / 'mine.txt'}")
    code, _, err = earwitness(*words)

    assert 2 == code
    assert "prompts.tags asks for it; --set 'prompts.tags=[]' takes every prompt" in err
    assert 0 == earwitness(*words, "--set", "prompts.tags=[]")[0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "scenario: none given"),
        (("qick",), "did you mean 'quick'?"),
        (("quick", "--rates", "1,x"), "--rates: 'x' is not a number"),
        (("quick", "--rates", "0"), "--rates: arrivals.rates_rps[0]: 0"),
        (("quick", "--rates", "nan"), "--rates: arrivals.rates_rps[0]"),
        (("quick", "--seeds=-1"), "--seeds: arrivals.seeds[0]: -1"),
        (("quick", "--seeds", "1.5"), "--seeds: '1.5' is not a whole number"),
        (("quick", "--duration", "-3"), "--duration: phases.measure_s: -3.0 should be"),
        (("quick", "--set", "phases"), "--set: found 'phases', expected key=value"),
        (("quick", "--set", "phases.warm=1"), "--set: phases.warm: unknown key"),
        (("quick", "--set", "engines[0].nme=x"), "--set: engines[0].nme: unknown key"),
        (("quick", "--set", "engines[7].name=x"), "--set: engines[7].name: '7' is not one of"),
        (("quick", "--base-url", "127.0.0.1:1"), "--base-url: engines[0].base_url: '127.0.0.1:1'"),
        (("quick", "--engine", "opena"), "did you mean 'openai'?"),
        (("two-modes", "--base-url", "http://x"), "--base-url: needs one engine"),
        (("quick", "--set", "prompts.set=nowhere.txt"), "nowhere.txt"),
        (
            (
                "quick",
                "--nonsense",
            ),
            "No such option",
        ),
    ],
)
def test_a_bad_option_is_exit_2_and_one_line(arguments, complaint: str, earwitness):
    """On stderr, with nothing on stdout and no traceback."""
    code, out, err = earwitness("schedule", *arguments)

    assert (2, "") == (code, out)
    assert complaint in err
    assert "Traceback" not in err


# -- run -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_is_told_on_stderr_and_kept_in_its_folder(earwitness, tmp_path: Path):
    """The estimate comes before the engine is asked; stdout stays empty without a report."""
    with ScriptedServer(voice()) as server:
        path = short_run_file(tmp_path, server.base_url)
        code, out, err = earwitness("run", path, "-o", tmp_path / "run", "--no-report")

    lines = err.splitlines()
    assert (0, "") == (code, out)
    assert lines[0].startswith("will send to 127.0.0.1 (own or private host): 8 requests")
    assert "models piper-joe" in lines[1]
    assert f"recorded in {tmp_path / 'run'} (complete)" == lines[-1]
    assert RunStatus.COMPLETE is open_run(tmp_path / "run").record.status


@pytest.mark.slow
def test_one_request_is_sent_before_the_load_unless_told_otherwise(earwitness, tmp_path: Path):
    """By default; it is announced, told, and in none of the tables."""
    speech: list[int] = []
    for word in ((), ("--no-preflight",)):
        folder = tmp_path / f"run{len(word)}"
        with ScriptedServer(voice()) as server:
            path = short_run_file(tmp_path, server.base_url, preflight=True)
            code, _, err = earwitness("run", path, *word, "-o", folder, "--no-report")
            speech.append(sum(request.method == "POST" for request in server.requests))

        assert (0, 8) == (code, len(open_run(folder).requests))
        assert ("9 requests (1 of them before the load)" in err) is (word == ())
        assert ("one request before the load: ok after" in err) is (word == ())
    assert [9, 8] == speech


@pytest.mark.slow
def test_voice_and_parameters_reach_the_engine_that_is_run(earwitness, tmp_path: Path):
    """`--voice`, `--param` and `--set engines.0...` alike, for an engine of `--engine` too."""
    with ScriptedServer(voice()) as server:
        path = short_run_file(tmp_path, "http://127.0.0.1:9")
        engine = ("--engine", "generic", "--base-url", server.base_url)
        given = ("--voice", "anna", "--param", "speed=1.5", "--set", "engines.0.params.model=m")
        code, _, err = earwitness("run", path, *engine, *given, "-o", tmp_path / "r", "--no-report")
        heard = [request.json for request in server.requests if request.method == "POST"]

    assert 0 == code, err
    assert {("anna", 1.5, "m")} == {(said["voice"], said["speed"], said["model"]) for said in heard}


@pytest.mark.slow
def test_an_address_that_ends_in_v1_is_exit_4_with_what_to_drop(earwitness, tmp_path: Path):
    """As clients of OpenAI take it; the load is not sent into 404s, and nobody waits."""
    with ScriptedServer(ok(b"no such page", status=404)) as server:
        path = short_run_file(tmp_path, server.base_url, timeouts={"ready_s": 60.0})
        where = ("--engine", "openai", "--base-url", f"{server.base_url}/v1")
        code, _, err = earwitness("run", path, *where, "-o", tmp_path / "run")

    assert 4 == code
    assert "drop /v1 from the base URL" in err.splitlines()[-1]
    assert not [request for request in server.requests if request.method == "POST"]


@pytest.mark.slow
def test_a_run_ends_with_its_figures_as_json(earwitness, tmp_path: Path):
    """stdout is metrics.json alone: warm-up counted apart, the cohort as planned."""
    with ScriptedServer(voice()) as server:
        path = short_run_file(tmp_path, server.base_url)
        code, out, _ = earwitness("run", path, "-o", tmp_path / "run", "--json")

    [point] = json.loads(out)["points"]
    # 3: the machine that runs the tests was too busy for figures to be trusted.
    assert code in (0, 3)
    assert (6, {"ok": 6}) == (point["n"], {k: v for k, v in point["outcomes"].items() if v})
    assert 6 == point["metrics"]["audible_ttfa"]["n"]
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.slow
def test_a_run_in_which_everything_failed_is_exit_5(earwitness, tmp_path: Path):
    """The folder is complete and the message says how many."""
    with ScriptedServer(voice(lambda _request: refusal())) as server:
        path = short_run_file(tmp_path, server.base_url)
        code, _, err = earwitness("run", path, "-o", tmp_path / "run", "--no-report")

    assert 5 == code
    assert "all 6 measured requests failed" in err.splitlines()[-1]
    assert RunStatus.COMPLETE is open_run(tmp_path / "run").record.status


def test_a_port_where_nobody_listens_is_exit_4(earwitness, tmp_path: Path):
    """With the address, the limit that was waited for, and no folder."""
    path = short_run_file(tmp_path, "http://127.0.0.1:9", timeouts={"ready_s": 0.1})
    code, out, err = earwitness("run", path, "-o", tmp_path / "run")

    assert (4, "") == (code, out)
    assert "is not ready after 0.1 s (timeouts.ready_s)" in err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_another_server_on_the_port_is_exit_4_and_no_table(earwitness, tmp_path: Path):
    """A dummy that answers 200 to everything is told apart from the engine."""
    with ScriptedServer(ok(b"{}", content_type="application/json")) as server:
        path = short_run_file(tmp_path, server.base_url)
        code, out, err = earwitness("run", path, "-o", tmp_path / "run")

    assert (4, "") == (code, out)
    assert "is not the server of contract earwitness-piper" in err
    assert not (tmp_path / "run").exists()


def test_an_existing_folder_is_exit_6(earwitness, tmp_path: Path):
    """It is refused by name and left alone."""
    path = short_run_file(tmp_path, "http://127.0.0.1:9")
    code, _, err = earwitness("run", path, "-o", tmp_path)

    assert 6 == code
    assert f"{tmp_path}: exists already" in err


def test_a_folder_that_cannot_be_written_is_exit_6(earwitness, tmp_path: Path):
    """A file in the way is one line."""
    (tmp_path / "file").write_text("")
    with ScriptedServer(voice()) as server:
        path = short_run_file(tmp_path, server.base_url)
        code, _, err = earwitness("run", path, "-o", tmp_path / "file" / "run")

    assert 6 == code
    assert "cannot be made" in err.splitlines()[-1]


def test_a_public_host_without_consent_is_exit_2_before_any_packet(
    earwitness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The name is looked up; nothing is sent, and no folder is made."""
    looked_up: list[str] = []

    def resolve(host: str, *_: object, **__: object):
        looked_up.append(host)
        return [(2, 1, 6, "", ("93.184.215.14", 0))]

    def no_connection(*_: object) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    monkeypatch.setattr("socket.socket.connect", no_connection)
    path = short_run_file(tmp_path, "http://tts.example.com")
    code, _, err = earwitness("run", path, "-o", tmp_path / "run")

    assert (2, ["tts.example.com"]) == (code, looked_up)
    assert "tts.example.com is a public host and this run would send 8 requests" in err
    assert not (tmp_path / "run").exists()


def test_resume_goes_on_with_its_own_scenario_alone(earwitness, tmp_path: Path):
    """Other options beside --resume would mix two scenarios in one table."""
    code, _, err = earwitness("run", "quick", "--resume", tmp_path / "run", "-o", tmp_path / "x")

    assert 2 == code
    assert "--resume writes into the folder it goes on with" in err


def test_a_missing_recogniser_is_found_before_the_load(
    earwitness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Exit 7 with the command that installs it, and nothing asked or written."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "whisper" else real(name)
    )
    code, _, err = earwitness("run", "quick", "--wer", "-o", tmp_path / "run")

    assert (7, 1) == (code, len(err.splitlines()))
    assert "pip install -e '.[whisper]' in the folder of earwitness, or leave out --wer" in err


def test_no_text_stores_no_text(earwitness, tmp_path: Path):
    """`--no-text` is the scenario's recording.text: false."""
    with ScriptedServer(voice()) as server:
        path = short_run_file(tmp_path, server.base_url)
        earwitness("run", path, "-o", tmp_path / "run", "--no-report", "--no-text")

    assert open_run(tmp_path / "run").requests["text"].isna().all()


# -- endings ---------------------------------------------------------------------------------------


def _start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for_requests(server: ScriptedServer, num: int) -> None:
    deadline = time.monotonic() + 10
    while sum(r.method == "POST" for r in server.requests) < num:
        assert time.monotonic() < deadline, "the run did not start"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_in_order_with_130(signum: signal.Signals, tmp_path: Path):
    """Ctrl-C or SIGTERM: a valid folder marked interrupted, one line, no traceback."""
    phases = {"warmup_s": 0.0, "measure_s": 30.0, "drain_s": 1.0}
    with ScriptedServer(voice()) as server:
        path = short_run_file(tmp_path, server.base_url, phases=phases)
        process = _start("run", path, "-o", tmp_path / "run")
        _wait_for_requests(server, 3)
        process.send_signal(signum)
        _, err = process.communicate(timeout=20)

    run = open_run(tmp_path / "run")
    assert (130, RunStatus.INTERRUPTED) == (process.returncode, run.record.status)
    assert "interrupted; what had finished is in" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert len(run.requests) >= 3


@pytest.mark.slow
def test_a_killed_run_is_recovered_by_the_command(earwitness, tmp_path: Path):
    """SIGKILL; then `recover` keeps what had finished at the server before the kill."""
    phases = {"warmup_s": 0.0, "measure_s": 30.0, "drain_s": 1.0}
    with ScriptedServer(voice()) as server:
        path = short_run_file(tmp_path, server.base_url, phases=phases)
        process = _start("run", path, "-o", tmp_path / "run")
        _wait_for_requests(server, 8)
        process.kill()
        process.communicate()

    code, out, _ = earwitness("recover", tmp_path / "run", "--json")
    found = json.loads(out)
    assert (0, True, "incomplete") == (code, found["was_needed"], found["status"])
    # 20 requests a second: those of the last 250 ms may be lost.
    assert found["num_requests"] >= 3
    assert len(open_run(tmp_path / "run").requests) == found["num_requests"]


_SMALL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
"""


@pytest.mark.slow
def test_a_disk_that_fills_up_during_a_run_is_exit_6(earwitness, tmp_path: Path):
    """Files may grow to 30 kB here: the run ends at once, in one line, and can be recovered."""
    phases = {"warmup_s": 0.0, "measure_s": 30.0, "drain_s": 1.0}
    with ScriptedServer(voice()) as server:
        path = short_run_file(tmp_path, server.base_url, phases=phases)
        program = [sys.executable, "-c", _SMALL_DISK + _COMMAND, "30000"]
        process = subprocess.run(
            [*program, "run", str(path), "-o", str(tmp_path / "run")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=20,
        )

    assert 6 == process.returncode
    assert "make room, then run `earwitness recover`" in process.stderr.splitlines()[-1]
    assert "Traceback" not in process.stderr
    before = len(open_run(tmp_path / "run").requests)
    code, out, _ = earwitness("recover", tmp_path / "run", "--json")
    # Each reply has 8.8 kB of audio: three of them fit.
    assert (0, 3, 3) == (code, before, json.loads(out)["num_requests"])


def test_recovering_what_is_no_run_is_exit_6(earwitness, tmp_path: Path):
    """One line."""
    code, _, err = earwitness("recover", tmp_path)

    assert (6, f"earwitness: {tmp_path}: is not a run folder: it has no run.json\n") == (code, err)
