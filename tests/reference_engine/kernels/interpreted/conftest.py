"""Tests for a process of their own: Triton must find TRITON_INTERPRET when it is first imported.

`test_interpreter.py`, one folder up, starts that process; elsewhere nothing here is collected.
"""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
