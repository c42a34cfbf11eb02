"""Words of the report that are not metrics, and what each outcome means."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.report.model import Term

__all__ = ["GENERAL_TERMS", "OUTCOME_DEFINITIONS"]

GENERAL_TERMS: tuple[Term, ...] = (
    Term(
        "open_loop",
        "open loop",
        "Requests leave at times fixed before the run, whether or not earlier ones are answered,"
        " as callers do. A server that falls behind shows it as latency.",
        "",
    ),
    Term(
        "percentile",
        "percentile",
        "Nearest rank over every arrival of the measurement phase. A request that failed, was"
        " refused, timed out, was never sent or has no audible sound counts as worse than any"
        " latency; a percentile that lands on one is “not reached”.",
        "",
    ),
    Term(
        "interval",
        "95 % interval",
        "For percentiles from order statistics (exists from n = 6 for p50, 72 for p95, 368 for"
        " p99), from three seeds on by resampling; for shares the exact one (Clopper-Pearson); for"
        " WER by resampling prompts. Requests that queue behind each other or fail in bursts count"
        " as fewer.",
        "",
    ),
    Term(
        "verdict",
        "verdict",
        "The client judges itself: valid, suspect or invalid, with reasons. An invalid point says"
        " something about the client or the network, not about the server.",
        "",
    ),
    Term(
        "load",
        "load",
        "Sustained: requests in flight did not keep growing and at least 95 % of the arrivals"
        " ended by the end of the drain. Otherwise overloaded.",
        "",
    ),
    Term(
        "capacity",
        "capacity",
        "The highest rate whose points meet the objective on every seed. It is an interval: from"
        " the highest rate that was met to the lowest that was missed.",
        "",
    ),
    Term(
        "underrun",
        "underrun",
        "The player ran dry: a chunk came at least 1 ms after the moment its first sample was due."
        " Depends on the start rule, which is printed with it.",
        "",
    ),
    Term(
        "onset",
        "onset",
        "The first sample of sound: the level stays at or above -45 dBFS for at least 30 ms. A"
        " click, a constant offset or steady low noise is not an onset.",
        "",
    ),
)

OUTCOME_DEFINITIONS: Mapping[str, str] = {
    "ok": "The reply ended cleanly and holds sound.",
    "refused": "The server said that it is busy (429, 503, or its own word for it).",
    "http_error": "Any other status that is not 2xx.",
    "connect_error": "No connection could be made.",
    "stale_connection": "A kept connection was closed on re-use before any byte of a response.",
    "protocol_error": "The framing or the content type was wrong.",
    "server_error": "The server reported an error inside the stream.",
    "truncated": "The stream ended before its framing or its protocol said so.",
    "timeout": "A limit set by the user passed, or the request was in flight when the drain ended.",
    "dead_peer": "The other side stopped answering at all.",
    "cancelled": "The scenario hung up, as a caller who interrupts.",
    "not_sent": "The safety cap on requests in flight was reached; the request was not sent.",
    "client_error": "A fault or limit of this client; it makes the run invalid.",
    "empty_audio": "The reply ended cleanly without one sample.",
    "silent": "The reply has samples but no sound.",
    "runaway": "Far more audio than the text can need.",
    "wrong_format": "Not the format that the contract promises, or bytes that are no audio.",
}
