"""Clients that nobody here wrote: OpenAI's library, the websockets package, curl."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import openai
import pytest
from websockets.sync.client import connect

from tests.builders.reference_server import MODEL_ID, NUM_FRAMES, PATH, body, start

NUM_BYTES = 2 * 1920 * NUM_FRAMES
MORE = {key: body()[key] for key in ("stream", "ignore_eos", "max_new_tokens")}


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.base_url + "/v1", api_key="any", max_retries=0) as one:
        yield one


def test_openais_library_streams(client):
    """Audio in pieces, nothing lost."""
    with client.audio.speech.with_streaming_response.create(
        model=MODEL_ID, voice="ryan", input="hello", response_format="pcm", extra_body=MORE
    ) as response:
        parts = list(response.iter_bytes())

    assert NUM_BYTES == sum(len(part) for part in parts)


def test_openais_library_takes_a_whole_file(client, tmp_path: Path):
    """The default of its own example: one call, one file."""
    response = client.audio.speech.create(
        model=MODEL_ID,
        voice="ryan",
        input="hello",
        response_format="wav",
        instructions="calm",
        extra_body={**MORE, "stream": False},
    )
    response.write_to_file(tmp_path / "out.wav")

    assert 44 + NUM_BYTES == (tmp_path / "out.wav").stat().st_size


def test_openais_library_lists_the_model(client):
    """Under the name that it then has to send."""
    assert [MODEL_ID] == [model.id for model in client.models.list()]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"voice": "nobody"}, "voice: 'nobody' is not one of"),
        ({"response_format": "mp3"}, "response_format"),
        ({"input": " "}, "nothing to say"),
        ({"model": "tts-1"}, f"ask for '{MODEL_ID}'"),
        ({"speed": 2.0}, "speed"),
    ],
)
def test_openais_library_raises_what_was_wrong(client, fields, message):
    """Its own class for 422, with our one line and the field."""
    asked = {"model": MODEL_ID, "voice": "ryan", "input": "hello", "response_format": "pcm"}

    with pytest.raises(openai.UnprocessableEntityError, match=message) as raised:
        client.audio.speech.create(**(asked | fields))

    assert next(iter(fields)) == raised.value.param


def test_the_websockets_package_speaks_the_protocol(server):
    """Settings, words one by one after each acknowledgement, audio, a clean close."""
    audio, kinds = b"", []
    with connect(
        server.ws_url, subprotocols=["nari.speech.v1"], compression=None, open_timeout=10
    ) as socket:
        kinds.append(json.loads(socket.recv(10))["type"])
        socket.send(json.dumps(start()))
        kinds.append(json.loads(socket.recv(10))["type"])
        for sequence, word in enumerate(["hello ", "the ", "user"]):
            socket.send(
                json.dumps({"type": "input_text.append", "sequence": sequence, "text": word})
            )
        socket.send(json.dumps({"type": "input_text.end", "sequence": 3}))
        for message in socket:
            if isinstance(message, bytes):
                audio += message
            else:
                kinds.append(json.loads(message)["type"])

    assert NUM_BYTES == len(audio)
    assert 1000 == socket.close_code
    assert ["session.created", "request.configured"] == kinds[:2]
    assert "response.done" == kinds[-1]
    assert 4 == kinds.count("input_text.ack")


def test_curl_saves_a_file(server, tmp_path: Path):
    """As the README shows it."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    out = tmp_path / "out.wav"
    subprocess.run(
        [
            *("curl", "-sS", "--fail", "-o", out, server.base_url + PATH),
            *("-H", "Content-Type: application/json"),
            *("-d", json.dumps(body(response_format="wav"))),
        ],
        check=True,
        timeout=30,
    )

    assert 44 + NUM_BYTES == out.stat().st_size
