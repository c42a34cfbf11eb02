"""Switch the kernel's receive stamping on for good, and find out whether it works here."""

from __future__ import annotations

import select
import socket

from harness.wire.socket import SO_TIMESTAMPNS

__all__ = ["StampAnchor", "kernel_stamps_work"]

_PROBE_WAIT_S = 1.0
_NUM_PROBES = 50
_PROBE_PAUSE_S = 0.01


class StampAnchor:
    """One open socket that asked for stamps.

    The kernel stamps packets only while somebody wants it, and turning it on takes a moment: the
    first segments of the first connection would otherwise come without.
    """

    def __init__(self) -> None:
        self._sock: socket.socket | None = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.is_supported = True
        except OSError:
            self.is_supported = False

    def close(self) -> None:
        """Give the descriptor back."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def kernel_stamps_work() -> bool:
    """Send a few bytes over loopback TCP and look whether their reads carry a stamp."""
    if not hasattr(socket.socket, "recvmsg"):
        return False
    anchor = StampAnchor()
    try:
        return anchor.is_supported and _is_stamped_on_loopback()
    except OSError:
        return False
    finally:
        anchor.close()


def _is_stamped_on_loopback() -> bool:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        client.connect(server.getsockname())
        peer, _ = server.accept()
        with peer:
            # The first may come before stamping is on everywhere, the later the busier the machine.
            for _ in range(_NUM_PROBES):
                peer.send(b"?")
                if not select.select([client], [], [], _PROBE_WAIT_S)[0]:
                    return False
                _, ancillary, _, _ = client.recvmsg(16, socket.CMSG_SPACE(16))
                if any(kind == SO_TIMESTAMPNS for _, kind, _ in ancillary):
                    return True
                select.select([], [], [], _PROBE_PAUSE_S)
            return False
