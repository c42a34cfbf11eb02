# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's settings: one frozen object, built once from the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engines.embedded.errors import SettingsError
from engines.embedded.scheduler import PolicyName

__all__ = [
    "MODEL_ID",
    "OWNER",
    "SERVER_NAME",
    "VOICE_ID",
    "Mode",
    "ServerConfig",
    "cache_folder",
]

SERVER_NAME = "earwitness-piper"
MODEL_ID = "piper-joe"
VOICE_ID = "joe"
OWNER = "earwitness"


class Mode(StrEnum):
    """How a reply is cut into chunks: inside the sentence, or one chunk a sentence."""

    STREAM = "stream"
    SENTENCE = "sentence"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """All settings of one server process.

    `noise` scales the voice's own randomness: 0 gives the same audio every time, 1 is the voice
    as trained. `max_queue` counts open requests beyond one a worker. `api_key` None: open.

    Raises:
        SettingsError: a value is out of range.
    """

    mode: Mode = Mode.STREAM
    host: str = "127.0.0.1"
    port: int = 8123
    num_workers: int = 1
    policy: PolicyName = PolicyName.DEADLINE
    max_queue: int = 64
    noise: float = 1.0
    max_characters: int = 4096
    max_body_bytes: int = 65_536
    read_timeout_s: float = 10.0
    write_timeout_s: float = 30.0
    drain_s: float = 10.0
    # 20 s of audio: far ahead of any player, little memory for a reader that stalls.
    max_unsent_bytes: int = 20 * 22_050 * 2
    stats_capacity: int = 4096
    api_key: str | None = None
    should_stop_on_stdin_eof: bool = False

    def __post_init__(self) -> None:
        _in_range("--port", self.port, lowest=0, highest=65_535)
        _in_range("--workers", self.num_workers, lowest=1, highest=256)
        _in_range("--max-queue", self.max_queue, lowest=0, highest=100_000)
        _in_range("--noise", self.noise, lowest=0, highest=2)
        _in_range("--drain-s", self.drain_s, lowest=0, highest=600)
        if not self.host:
            raise SettingsError("--host: '' is empty; expected an address such as 127.0.0.1")
        if self.api_key is not None and not self.api_key.strip():
            raise SettingsError(
                "--api-key-env: the key is empty; set the variable or drop the flag"
            )

    @property
    def max_open(self) -> int:
        """Requests that may be in progress or waiting at once; the next one gets a 429."""
        return self.num_workers + self.max_queue


def _in_range(flag: str, value: float, *, lowest: float, highest: float) -> None:
    # Written so that NaN fails too.
    if not lowest <= value <= highest:
        raise SettingsError(f"{flag}: {value} is out of range; expected {lowest} to {highest}")


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where derived files are kept: $EARWITNESS_CACHE, else the XDG cache folder."""
    if chosen := environ.get("EARWITNESS_CACHE"):
        return Path(chosen).expanduser()
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base) / "earwitness"
    return Path.home() / ".cache" / "earwitness"
