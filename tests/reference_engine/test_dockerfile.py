"""The recipe of the container against the checkout it is built from; nothing is built."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from reference_engine.server.__main__ import parse_arguments

ROOT = Path(__file__).resolve().parents[2]
FILE = (ROOT / "reference_engine" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
IGNORED = (ROOT / "reference_engine" / "Dockerfile.dockerignore").read_text(encoding="utf-8")


def argument_lists(instruction: str) -> list[list[str]]:
    """The JSON forms of an instruction, in order."""
    found = re.findall(rf"^.*\b{instruction} (\[[^\]]+\])", FILE, flags=re.MULTILINE)
    return [json.loads(text) for text in found]


def copied() -> list[str]:
    lines = re.findall(r"^COPY (.+)$", FILE, flags=re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_whatever_is_copied_exists_and_reaches_the_builder():
    """Everything else of a checkout is kept away from it."""
    allowed = {line[1:] for line in IGNORED.splitlines() if line.startswith("!")}

    assert set(copied()) == allowed
    assert [] == [name for name in copied() if not (ROOT / name).exists()]


def test_what_is_installed_is_declared_and_pinned():
    """The extra exists, and torch comes by the pin of the constraint file."""
    (extra,) = re.findall(r"'\.\[(\w+)\]'", FILE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()

    assert extra in project["optional-dependencies"]
    assert 1 == sum(pin.startswith("torch==") for pin in pins)
    assert {"README.md", "LICENSE", "pyproject.toml"} <= set(copied())


def test_the_probe_asks_the_port_that_is_served():
    """Ready, not merely alive; an open route, so that a key does not make it unhealthy."""
    (entry,) = argument_lists("ENTRYPOINT")
    launch = parse_arguments([*entry[4:], "--random=tiny"])
    probe = argument_lists("CMD")[0][-1]

    assert ["python", "-P", "-m", "reference_engine.server"] == entry[:4]
    assert "0.0.0.0" == launch.settings.host
    assert f"127.0.0.1:{launch.settings.port}/ready" in probe
    assert f"EXPOSE {launch.settings.port}\n" in FILE


def test_the_server_does_not_run_as_root():
    """The user is made before it is switched to, and nothing is installed after."""
    made, used = FILE.index("useradd"), FILE.index("USER engine")

    assert made < used
    assert "pip install" not in FILE[used:]
