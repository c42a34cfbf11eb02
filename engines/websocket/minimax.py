"""MiniMax: a task that is started, continued with text and finished; audio is hex in JSON.

Source: pipecat git acead05 (2026-08-21). Not seen live.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engines.base import (
    Action,
    AudioFormat,
    Done,
    PayloadEncoding,
    RateSource,
    SampleFormat,
    Send,
    TextDue,
)
from engines.http_body import protocol_error
from engines.http_contract import AuthSpec, CredentialSpec, FieldSpec, ValueType
from engines.redact import one_line
from engines.websocket.session import Protocol, Session, SessionAdapter, SessionSetup, compact

__all__ = ["MinimaxSpeech", "MinimaxSpeechAdapter"]


class MinimaxSpeech(Session):
    """`task_start`, a `task_continue` a piece, `task_finish`; audio is hex."""

    def __init__(self, setup: SessionSetup) -> None:
        super().__init__(setup)
        self._is_started = False

    def promised(self) -> AudioFormat | None:
        """Headerless samples at the rate that was asked for."""
        rate = self.values["sample_rate"]
        return AudioFormat(SampleFormat.S16LE, rate, 1, RateSource.CONTRACT)

    def may_write(self) -> bool:
        """Once the task has started."""
        return self._is_started

    def write_text(self, piece: TextDue) -> list[Send]:
        """Text, and the end of the task after the last of it."""
        further = [{"event": "task_continue", "text": piece.text}] if piece.text else []
        return self.piece_and_end(piece, further, {"event": "task_finish"})

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """The steps of a task."""
        match message.get("event"):
            case "connected_success":
                return [self._start()]
            case "task_started":
                self._is_started = True
                return []
            case "task_continued":
                data = message.get("data")
                text = data.get("audio") if isinstance(data, dict) else None
                return self.decoded(text, PayloadEncoding.HEX)
            case "task_finished":
                return [Done()]
            case "task_failed":
                return [self.failed(message, "/base_resp/status_msg", "/message")]
            case other:
                return [protocol_error("message", f"unknown event {one_line(str(other)[:60])!r}")]

    def _start(self) -> Send:
        values = self.values
        voice = {"voice_id": values["voice"], **self.setup.chosen("speed", "vol", "pitch")}
        return Send(
            compact(
                {
                    "event": "task_start",
                    "model": values["model"],
                    "voice_setting": voice,
                    "audio_setting": {
                        "format": "pcm",
                        "sample_rate": values["sample_rate"],
                        "channel": 1,
                    },
                }
            )
        )


class MinimaxSpeechAdapter(SessionAdapter):
    """MiniMax, streaming text in and audio out."""

    SESSION = MinimaxSpeech
    PROTOCOL = Protocol(
        name="minimax-ws",
        title="MiniMax, WebSocket",
        source="pipecat acead05 (2026-08-21); read in clients only",
        path="/ws/v1/t2a_v2",
        base_url="wss://api.minimax.io",
        fields=MappingProxyType(
            {
                "voice": FieldSpec(source="voice", required=True),
                "model": FieldSpec(default="speech-2.6-turbo"),
                "sample_rate": FieldSpec(
                    type=ValueType.INTEGER, default=24_000, min=8000, max=44_100
                ),
                "speed": FieldSpec(type=ValueType.NUMBER, min=0.5, max=2),
                "vol": FieldSpec(type=ValueType.NUMBER, min=0),
                "pitch": FieldSpec(type=ValueType.INTEGER),
            }
        ),
        formats=("pcm",),
        auth=AuthSpec(
            hosts=("api.minimax.io",),
            headers={"Authorization": CredentialSpec(env="MINIMAX_API_KEY", prefix="Bearer ")},
        ),
    )
