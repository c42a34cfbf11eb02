"""How uncertain the arrival stamp of each chunk is.

A kernel stamp belongs to the last segment of what the kernel had queued. When one read completes
several deliveries, only the last of them has the stamp that is its own, unless all came in one
segment; the earlier ones came at some time between the moment the socket was known to be empty and
that stamp. The harness says of each chunk whether its stamp is its own (`is_exact`).

Source: analysis/METRICS.md, "Stamps and their uncertainty".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.records import ChunkEvent, StampSource

__all__ = ["StampRule", "chunk_uncertainties", "stamp_rule"]


@dataclass(frozen=True, slots=True)
class StampRule:
    """Where stamps come from, and how far a converted kernel stamp can be off."""

    source: StampSource
    conversion_ns: int


def stamp_rule(clock: dict[str, Any]) -> StampRule:
    """The rule of a run, from the `clock` part of its record.

    The conversion error is the median of those kept with the clock offsets.
    """
    source = StampSource(clock.get("stamp_source", StampSource.USER))
    errors = sorted(int(offset[2]) for offset in clock.get("offsets", ()))
    conversion = errors[len(errors) // 2] if errors else 0
    return StampRule(source, conversion if source is StampSource.KERNEL else 0)


def chunk_uncertainties(chunks: Sequence[ChunkEvent], rule: StampRule) -> tuple[int, ...]:
    """For each chunk of one request, how long before `arrival_ns` it may have come, in ns.

    With user stamps every chunk may have waited since the socket was last seen empty. With kernel
    stamps that holds for the chunks whose stamp is not their own: something else was read behind
    them in another segment, or the wall clock was set meanwhile.
    """
    found = []
    previous_read_ns = None  # last arrival of the latest read before this one that is beyond doubt
    for index, chunk in enumerate(chunks):
        previous = chunks[index - 1] if index else None
        # A read that did not empty the queue has the stamp of bytes that came after its own.
        if previous is not None and chunk.read_ns != previous.read_ns and previous.is_exact:
            previous_read_ns = previous.arrival_ns
        if chunk.is_exact and rule.source is StampSource.KERNEL:
            found.append(rule.conversion_ns)
            continue
        floor_ns = chunk.floor_ns
        if previous_read_ns is not None:
            floor_ns = max(floor_ns, previous_read_ns)
        found.append(max(0, chunk.arrival_ns - floor_ns) + rule.conversion_ns)
    return tuple(found)
