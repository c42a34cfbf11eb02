"""The real voice, as its own process: what it says and how it lives."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import aiohttp
import numpy as np
import pytest

from tests.builders.embedded import CACHE_FOLDER, embedded_process, embedded_server

TEXTS = (
    "Yes.",
    "Good morning, thanks for calling, how can I help you today?",
    "Your table is booked. We look forward to seeing you! Is there anything else?",
)
HOP_BYTES = 256 * 2
# Both modes truncate to int16; their floats differ by 1.2e-5 at most, less than half a step.
MAX_STEP = 1
_MAIN = "from harness.cli.main import main; main()"
SERVE_PIPER = (sys.executable, "-c", _MAIN, "serve", "piper")


@pytest.fixture(scope="session")
def stream_url():
    with embedded_server(mode="stream") as url:
        yield url


@pytest.fixture(scope="session")
def sentence_server():
    with embedded_process(["--mode=sentence", "--noise=0"]) as server:
        yield server


@pytest.fixture
def sentence_url(sentence_server):
    return sentence_server.base_url


async def _say(client: aiohttp.ClientSession, text: str, request_id: str) -> list[bytes]:
    """The chunks of a reply, as the server framed them."""
    headers = {"X-Request-Id": request_id}
    async with client.post("/v1/audio/speech", json={"input": text}, headers=headers) as reply:
        assert reply.status == 200
        chunks, parts = [], []
        async for data, is_end in reply.content.iter_chunks():
            parts.append(data)
            if is_end:
                chunks.append(b"".join(parts))
                parts.clear()
        return [chunk for chunk in chunks if chunk]


def say(url: str, *texts: str) -> list[list[bytes]]:
    """The chunks of one reply for each text, all asked at once."""

    async def scene():
        async with aiohttp.ClientSession(url) as client:
            asked = (_say(client, text, f"t-{place}") for place, text in enumerate(texts))
            return await asyncio.gather(*asked)

    return asyncio.run(scene())


def get(url: str) -> tuple[int, dict]:
    """Status (0: refused) and JSON of a GET."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except urllib.error.URLError:
        return 0, {}


def as_samples(chunks: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(chunks), dtype="<i2").astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_streaming_inside_the_sentence_gives_the_audio_of_the_whole_sentence(
    stream_url, sentence_url, text
):
    """Without noise the chunks, put together, are the sentence to one quantisation step."""
    streamed, whole = as_samples(say(stream_url, text)[0]), as_samples(say(sentence_url, text)[0])

    assert whole.shape == streamed.shape
    assert MAX_STEP >= np.abs(streamed - whole).max()
    # Speech, not two equal silences.
    assert 1000 < np.abs(whole).max()


@pytest.mark.slow
def test_chunks_begin_small_and_grow(stream_url):
    """16, 32, then 64 codec frames of 256 samples, and the rest of the sentence last."""
    sizes = [len(chunk) // HOP_BYTES for chunk in say(stream_url, TEXTS[1])[0]]

    assert [16, 32, 64] == sizes[:3]
    assert all(size == 64 for size in sizes[2:-1])
    assert 1 <= sizes[-1] <= 64


@pytest.mark.slow
def test_sentence_mode_sends_one_chunk_a_sentence(sentence_url):
    """Three sentences, three chunks."""
    assert 3 == len(say(sentence_url, TEXTS[2])[0])


@pytest.mark.slow
def test_without_noise_the_audio_repeats_bit_for_bit_even_when_shared(stream_url):
    """Requests that share the inference thread do not touch each other's audio."""
    alone = b"".join(say(stream_url, TEXTS[1])[0])
    together = say(stream_url, TEXTS[1], TEXTS[0], TEXTS[1])

    assert [alone, alone] == [b"".join(together[0]), b"".join(together[2])]


@pytest.mark.slow
def test_the_server_counted_what_the_client_received(stream_url):
    """Bytes and chunks agree for every one of several concurrent replies."""
    replies = say(stream_url, *TEXTS)
    counted = [get(f"{stream_url}/v1/requests/t-{place}")[1] for place in range(len(TEXTS))]

    assert [("done", sum(map(len, chunks)), len(chunks)) for chunks in replies] == [
        (entry["status"], entry["body_bytes"], entry["num_chunks"]) for entry in counted
    ]


@pytest.mark.slow
def test_text_without_a_word_is_refused_and_the_server_lives_on(stream_url):
    """Dots alone give no phoneme: 422, and the next request is served."""

    async def scene():
        async with aiohttp.ClientSession(stream_url) as client:
            async with client.post("/v1/audio/speech", json={"input": "..."}) as reply:
                status = reply.status
            return status, await _say(client, "Yes.", "after")

    status, chunks = asyncio.run(scene())
    assert (422, True) == (status, bool(chunks))


@pytest.mark.slow
def test_malformed_http_is_a_400_without_a_traceback(sentence_server):
    """Junk on the port costs its sender a 400 and leaves the log clean."""
    address = urllib.parse.urlsplit(sentence_server.base_url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as client:
        client.sendall(b"GET / HTTP/9.9\r\n\r\n")
        reply = client.recv(1024)
    said = sentence_server.stderr_path.read_text(encoding="utf-8")

    assert (b"HTTP/1.0 400", False) == (reply[:12], "Traceback" in said)


@pytest.mark.slow
def test_the_command_starts_the_server_which_is_ready_only_once_warm():
    """From its first answer on: 503 with a reason, then 200 with the ready line, exit 0 on TERM.

    With the voice's own noise two replies differ, which no answer of the noise-free servers may.
    """
    process = subprocess.Popen(
        [*SERVE_PIPER, "--port=0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Unbuffered: a line read ahead with another would be lost to `communicate`.
        bufsize=0,
        env={**os.environ, "EARWITNESS_CACHE": str(CACHE_FOLDER)},
    )
    try:
        url = _announced_url(process)
        codes = _health_codes_until_ready(process, url)
        ready = json.loads(process.stdout.readline())
        replies = [b"".join(say(url, "Yes.")[0]) for _ in range(2)]
    finally:
        process.send_signal(signal.SIGTERM)
        stderr = process.communicate(timeout=15)[1].decode()

    # A machine may be so busy that the voice is warm before we first ask.
    assert codes[-1] == 200
    assert set(codes[:-1]) <= {503}
    assert {"ready": True, "url": url, "mode": "stream"}.items() <= ready.items()
    assert replies[0] != replies[1]
    assert (0, True) == (process.returncode, "evaluation only" in stderr)


def _announced_url(process: subprocess.Popen[bytes]) -> str:
    line = process.stderr.readline().decode()
    found = re.search(r"listening on (\S+) port (\d+)", line)
    assert found, line
    return f"http://{found[1]}:{found[2]}"


def _health_codes_until_ready(process: subprocess.Popen[bytes], url: str) -> list[int]:
    codes = []
    while 200 not in codes:
        codes.append(get(f"{url}/health")[0])
        # The ready line is written after the state changed, so only a 200 may come before it.
        has_line, _, _ = select.select([process.stdout], [], [], 0.02)
        if has_line and codes[-1] != 200:
            codes.append(get(f"{url}/health")[0])
            assert codes[-1] == 200
    return codes


@pytest.mark.slow
def test_a_parent_that_dies_ends_the_server_once_its_listener_has_heard_the_end(stream_url):
    """The pipe closes in the middle of a reply: the body is whole, then the process is gone."""

    async def scene(server):
        async with (
            aiohttp.ClientSession(server.base_url) as client,
            client.post("/v1/audio/speech", json={"input": TEXTS[1]}) as reply,
        ):
            first = await reply.content.readany()
            server.process.stdin.close()
            return first + await reply.content.read()

    undisturbed = b"".join(say(stream_url, TEXTS[1])[0])
    with embedded_process(["--noise=0"]) as server:
        during = asyncio.run(scene(server))
        code = server.process.wait(timeout=10)

    assert (undisturbed, 0) == (during, code)


class _YesToAll(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_port_that_another_healthy_server_holds_ends_the_start():
    """One line that names the port, and a failing exit code: nobody measures the other server."""
    with HTTPServer(("127.0.0.1", 0), _YesToAll) as other:
        ended = _serve_piper(f"--port={other.server_port}")

    assert 2 == ended.returncode
    assert [
        f"earwitness: port {other.server_port} on 127.0.0.1 is taken by another server; "
        "choose one with --port"
    ] == ended.stderr.splitlines()


@pytest.mark.slow
def test_a_voice_that_cannot_be_imported_is_one_line_and_exit_code_7(tmp_path):
    """A broken install is told like a missing one, with the command that mends it."""
    (tmp_path / "piper.py").write_text("raise ImportError('half installed')")

    ended = _serve_piper("--port=0", PYTHONPATH=str(tmp_path))

    said = ended.stderr.splitlines()[-1]
    assert (7, True, False) == (
        ended.returncode,
        "half installed" in said and "pip install -e '.[embedded]'" in said,
        "Traceback" in ended.stderr,
    )


def _serve_piper(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SERVE_PIPER, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.bench
def test_the_first_request_after_ready_is_as_quick_as_later_ones(stream_url, capsys):
    """Prints first sound of the first real request and the median of twenty more."""
    with embedded_process(["--noise=0"]) as server:
        first_ms, *later_ms = (_first_sound_ms(server.base_url) for _ in range(21))

    median_ms = statistics.median(later_ms)
    with capsys.disabled():
        print(f"\nfirst sound: first request {first_ms:.1f} ms, then p50 {median_ms:.1f} ms (n=20)")
    assert first_ms <= 1.2 * max(later_ms)


def _first_sound_ms(url: str) -> float:
    async def scene() -> float:
        async with aiohttp.ClientSession(url) as client:
            asked = time.perf_counter()
            async with client.post("/v1/audio/speech", json={"input": TEXTS[1]}) as reply:
                await reply.content.readany()
                heard = time.perf_counter()
                await reply.content.read()
            return (heard - asked) * 1e3

    return asyncio.run(scene())
