# SPDX-License-Identifier: GPL-3.0-or-later
"""The voice's network cut in two graphs, made once and kept in the cache folder.

Piper exports one graph from phonemes to waveform, which cannot be run in pieces. `streaming_vits`
cuts it at the frame-level latent: a frontend that sees the whole sentence, and a decoder that can
run on any stretch of codec frames. Cutting takes seconds, so the result is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from engines.embedded.errors import CacheFolderError

__all__ = ["SplitGraphs", "cached_split", "split_with_streaming_vits"]

_FACTS_FILE = "facts.json"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SplitGraphs:
    """The two graphs and the names of the tensors between them.

    `latent_name`: [1, channels, T] float32, `mask_name`: [1, 1, T] float32, T codec frames of
    `hop_samples` each. File names are relative to the folder that holds them; sizes tell a whole
    file from a damaged one.
    """

    frontend_file: str
    decoder_file: str
    frontend_bytes: int
    decoder_bytes: int
    latent_name: str
    mask_name: str
    hop_samples: int


Splitter = Callable[[Path, Path], SplitGraphs]


def split_with_streaming_vits(model_path: Path, folder: Path) -> SplitGraphs:
    """Cut `model_path` and write both graphs into `folder`."""
    from streaming_vits import graph

    # The rate is only written into that package's own facts, which are not read here.
    made = graph.split(model_path, folder, verbose=False)
    return SplitGraphs(
        frontend_file=made.frontend,
        decoder_file=made.decoder,
        frontend_bytes=(folder / made.frontend).stat().st_size,
        decoder_bytes=(folder / made.decoder).stat().st_size,
        latent_name=made.seam.z_p,
        mask_name=made.seam.mask,
        hop_samples=made.hop,
    )


def cached_split(
    model_path: Path, cache_dir: Path, *, splitter_id: str, split: Splitter
) -> tuple[SplitGraphs, Path]:
    """The two graphs of a model and their folder, cutting the model only where they are missing.

    The folder is keyed by the content of the model and by `splitter_id`, and appears by one
    rename: processes that start at once each cut, the first one's folder stays.

    Raises:
        CacheFolderError: the cache cannot be written.
    """
    key = f"{_sha256(model_path)[:32]}-{splitter_id}"
    home = cache_dir / "piper-split"
    folder = home / key
    found = _read_facts(folder)
    if found is not None:
        return found, folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=home))
    except OSError as error:
        raise CacheFolderError(_cannot_write(home, error)) from None
    try:
        facts = split(model_path, fresh)
        (fresh / _FACTS_FILE).write_text(json.dumps(asdict(facts)), encoding="utf-8")
        return _install(fresh, folder, facts=facts)
    except OSError as error:
        raise CacheFolderError(_cannot_write(home, error)) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _install(fresh: Path, folder: Path, *, facts: SplitGraphs) -> tuple[SplitGraphs, Path]:
    """Give the finished folder its name, unless another process was first."""
    # A folder that is there but cannot be read is damaged: its files may be in use by a process
    # that opened them before, so it is moved out of the way and not overwritten.
    if folder.exists() and _read_facts(folder) is None:
        damaged = Path(tempfile.mkdtemp(prefix=".damaged-", dir=folder.parent))
        os.replace(folder, damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        os.replace(fresh, folder)
    except OSError:
        theirs = _read_facts(folder)
        if theirs is None:
            raise
        return theirs, folder
    return facts, folder


def _read_facts(folder: Path) -> SplitGraphs | None:
    """What is stored in a cache folder, or None where it is absent, older or not whole."""
    try:
        stored = json.loads((folder / _FACTS_FILE).read_text(encoding="utf-8"))
        facts = SplitGraphs(**stored)
        is_whole = (folder / facts.frontend_file).stat().st_size == facts.frontend_bytes and (
            folder / facts.decoder_file
        ).stat().st_size == facts.decoder_bytes
    except (OSError, ValueError, TypeError):
        return None
    return facts if is_whole else None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _cannot_write(folder: Path, error: OSError) -> str:
    return (
        f"{folder}: cannot keep the split voice here ({error.strerror or error}); "
        "set EARWITNESS_CACHE to a folder that can be written"
    )
