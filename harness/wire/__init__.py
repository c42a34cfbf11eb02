"""The stamped wire: connections whose reads carry the kernel's receive time.

Reading order: `connection` (the seam), `socket` (stamps), `dial` and `resolve`, `http_message`
and `http`, `pool`, `context` (what they share), `call` (small whole replies).
"""

from harness.wire.connection import Connection, ConnectionInfo, Listener, Stamp, WireFailure
from harness.wire.context import Wire
from harness.wire.stamping import kernel_stamps_work

__all__ = [
    "Connection",
    "ConnectionInfo",
    "Listener",
    "Stamp",
    "Wire",
    "WireFailure",
    "kernel_stamps_work",
]
