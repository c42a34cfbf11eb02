"""The contract between an engine adapter and whoever drives it: no socket, no clock, no decoding.

An `Adapter` opens an `Exchange` for one request. The driver (`harness`) owns the connection and
the time. It feeds the exchange *events* (what happened on the wire, what fell due) and carries out
the *actions* that come back (what to send, which bytes are audio, how it ended). The same exchange
can therefore be tested byte by byte without a network, and one stamp per event is enough to time
everything it says.

Order of a life: `start()` once, then `feed(event)` for every event, until an action is `Done` or
`Fail`. After that the exchange returns no more actions, and the driver closes a connection
whose response has not ended.

An `Audio` action carries the bytes themselves, not a range: base64 inside JSON may hold escapes
and an event may lie across reads, so there is not always one contiguous range to point at.
Where the payload is raw, `data` is a view of the event's own buffer and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from engines.outcomes import TransportOutcome

__all__ = [
    "Action",
    "Adapter",
    "Audio",
    "AudioFormat",
    "Buffer",
    "CancelDue",
    "Capabilities",
    "Close",
    "Closed",
    "Done",
    "EndOfBody",
    "EngineInfo",
    "Event",
    "Exchange",
    "Fail",
    "Format",
    "Headers",
    "HttpTarget",
    "Message",
    "OddByte",
    "PayloadEncoding",
    "Probe",
    "ProbeReply",
    "ProcessTarget",
    "RateSource",
    "SampleFormat",
    "Send",
    "SideReply",
    "SideRequest",
    "SpeechRequest",
    "StreamBytes",
    "Target",
    "TcpTarget",
    "TextAccepted",
    "TextDue",
    "WavSize",
    "WebSocketTarget",
]

Buffer = bytes | bytearray | memoryview


class SampleFormat(StrEnum):
    """How payload bytes, once out of their text encoding, become samples."""

    S16LE = "s16le"
    S24LE = "s24le"
    F32LE = "f32le"
    MULAW = "mulaw"
    ALAW = "alaw"
    WAV = "wav"  # the header says the rest
    MP3 = "mp3"
    AAC = "aac"  # ADTS
    OGG_OPUS = "ogg_opus"
    FLAC = "flac"

    @property
    def bytes_per_sample(self) -> int | None:
        """Bytes of one sample of one channel; None where a header or a codec decides."""
        return _BYTES_PER_SAMPLE.get(self)


_BYTES_PER_SAMPLE: Mapping[str, int] = {
    SampleFormat.S16LE: 2,
    SampleFormat.S24LE: 3,
    SampleFormat.F32LE: 4,
    SampleFormat.MULAW: 1,
    SampleFormat.ALAW: 1,
}


class PayloadEncoding(StrEnum):
    """The text encoding around payload bytes as they are stored."""

    RAW = "raw"
    BASE64 = "base64"
    HEX = "hex"


class RateSource(StrEnum):
    """Who said what the sample rate is."""

    CONTRACT = "contract"
    HEADER = "header"
    CONTAINER = "container"
    MESSAGE = "message"


class OddByte(StrEnum):
    """What a payload that ends inside a sample means for the outcome (decided by `analysis`)."""

    REPORT = "report"
    ERROR = "error"


class WavSize(StrEnum):
    """Whether sizes in a WAV header may end a stream."""

    IGNORED = "ignored"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How the payload of one response is to be read.

    `sample_rate_hz` and `channels` are None where the container will say. `encoding` is the text
    encoding of the *stored* payload.
    """

    sample_format: SampleFormat
    sample_rate_hz: int | None
    channels: int | None
    rate_source: RateSource
    encoding: PayloadEncoding = PayloadEncoding.RAW
    odd_byte: OddByte = OddByte.REPORT
    wav_size: WavSize = WavSize.IGNORED


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """What is to be said once.

    With `is_incremental` the text arrives by `TextDue` events and `text` is the whole of it, for
    adapters that need its length. `params` are the engine-specific values of the scenario.
    """

    request_id: str
    text: str
    voice: str | None = None
    language: str | None = None
    is_incremental: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)


# -- where to -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """One HTTP/1.1 request, less its body (the first `Send` action is the body).

    `url` is absolute (`http` or `https`). `headers` hold neither Host nor Content-Length: the wire
    writes those. Names listed in `secret_headers` are never stored or printed.
    """

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    secret_headers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WebSocketTarget:
    """One WebSocket session; `url` is `ws` or `wss`."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()
    secret_headers: frozenset[str] = frozenset()
    max_message_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TcpTarget:
    """A raw TCP stream."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ProcessTarget:
    """A child process: standard input takes `Send`, standard output is the stream."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


Target = HttpTarget | WebSocketTarget | TcpTarget | ProcessTarget


# -- events: what happened ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Headers:
    """Response headers (HTTP) or an accepted session (WebSocket: status 101). Names lower-case."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        """The first value of a header, or None; `name` in any case."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


@dataclass(frozen=True, slots=True)
class StreamBytes:
    """Body bytes of one delivery: one read, cut at transfer-chunk borders (TCP, pipe: one read)."""

    data: Buffer


@dataclass(frozen=True, slots=True)
class Message:
    """One WebSocket message: `str` if text, bytes if binary."""

    data: str | Buffer


@dataclass(frozen=True, slots=True)
class TextDue:
    """A piece of incremental text fell due. `text` may be empty only on the last."""

    seq: int
    text: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class CancelDue:
    """The scenario wants this request to stop now."""


@dataclass(frozen=True, slots=True)
class SideReply:
    """The whole reply to a `SideRequest`, by its `tag`."""

    tag: str
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class EndOfBody:
    """The body ended as its framing said it would."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is gone. `code` is a WebSocket close code or a process's exit status."""

    code: int | None = None
    reason: str = ""


Event = Headers | StreamBytes | Message | TextDue | CancelDue | SideReply | EndOfBody | Closed


# -- actions: what to do --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Write this: an HTTP request body, a WebSocket message (`str`: text), or raw bytes.

    `text_seq` names the piece of incremental text it carries, so that its write can be stamped;
    of several gathered pieces, the last.
    `ends_text` marks the write after which no more text will follow.
    """

    data: str | bytes
    text_seq: int | None = None
    ends_text: bool = False


@dataclass(frozen=True, slots=True)
class Audio:
    """These bytes of the event just fed are payload; one action is one chunk.

    Zero decoded samples are legal (a header alone). The stamps are those of the event.
    """

    data: Buffer


@dataclass(frozen=True, slots=True)
class Format:
    """How the payload is to be read; comes before the first `Audio`, and at most once.

    `format` is what the wire says (falling back on the contract where it says nothing); `expected`
    is what the contract promised. `analysis` compares the two (`wrong_format`).
    """

    format: AudioFormat
    expected: AudioFormat | None = None


@dataclass(frozen=True, slots=True)
class TextAccepted:
    """The server acknowledged text piece `seq`."""

    seq: int


@dataclass(frozen=True, slots=True)
class SideRequest:
    """Do this HTTP call beside the main one and feed its reply as `SideReply` with the same tag.

    `text_seq` and `ends_text` mean what they mean on `Send`. Side requests of one exchange are
    made one after another, in order.
    """

    tag: str
    target: HttpTarget
    body: bytes = b""
    text_seq: int | None = None
    ends_text: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The reply is complete. `facts` are small things the server said (counts, stop reason)."""

    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fail:
    """The request ended badly: outcome, where (`headers`, `body`, `event 3`), and one line."""

    outcome: TransportOutcome
    where: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection now (WebSocket: with this code)."""

    code: int = 1000
    reason: str = ""


Action = Send | Audio | Format | TextAccepted | SideRequest | Done | Fail | Close


# -- who is there ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an adapter can do, for `earwitness engines` and for checks before a run."""

    transport: str
    formats: tuple[str, ...]
    is_streaming: bool = True
    has_incremental_text: bool = False
    can_cancel: bool = False
    seen_live: str | None = None  # "<version>, <date>" or None: from the specification only
    note: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """The reply to one probe call. `status` None: unreachable, `body` then holds the reason."""

    name: str
    status: int | None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Who answered. Everything the server did not say is None or empty, never guessed.

    `is_match` is False when the answer contradicts the contract (another server is listening);
    `mismatch` then says what was found and what was expected. None: the server cannot tell.
    """

    contract: str
    is_ready: bool
    reason: str = ""
    server_name: str | None = None
    server_version: str | None = None
    models: tuple[str, ...] = ()
    voices: tuple[str, ...] = ()
    is_match: bool | None = None
    mismatch: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Probe:
    """Calls that tell whether the right server is ready, and how to read the replies.

    `calls` maps a name (`health`, `ready`, `models`, `voices`) to a GET. The driver makes them
    all, in order, and hands the replies to `parse`. No calls: readiness cannot be asked.
    `metrics` is a page in Prometheus' text format, to be stored while the server is under load.
    """

    calls: Mapping[str, HttpTarget]
    parse: Callable[[Sequence[ProbeReply]], EngineInfo]
    metrics: HttpTarget | None = None


@runtime_checkable
class Exchange(Protocol):
    """One request in progress, as a pure state machine."""

    @property
    def target(self) -> Target:
        """Where to connect.

        An HTTP exchange may still change method, path and headers (never the host) until its
        first `Send`: the driver reads `target` once to connect and again to write the head. So
        one whose path is only known after a `SideReply` needs no second kind of target.
        """
        ...

    def start(self) -> list[Action]:
        """First actions, once the connection is there (HTTP: the body; WebSocket: the hello)."""
        ...

    def feed(self, event: Event) -> list[Action]:
        """What to do after `event`. Never raises on bytes from a server: that is a `Fail`."""
        ...


@runtime_checkable
class Adapter(Protocol):
    """How to talk to one kind of server at one address."""

    @property
    def name(self) -> str:
        """The contract's name, as in the registry."""
        ...

    @property
    def base_url(self) -> str:
        """Where the server is."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this adapter can do."""
        ...

    def open(self, request: SpeechRequest) -> Exchange:
        """Begin one request.

        Raises:
            ContractError: the request needs something this contract cannot say.
        """
        ...

    def probe(self) -> Probe:
        """How to find out who is there and whether it is ready."""
        ...
