"""The split graphs are made once, whole, whoever comes at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.embedded.config import cache_folder
from engines.embedded.errors import CacheFolderError
from engines.embedded.graph_cache import SplitGraphs, cached_split

FACTS = SplitGraphs(
    frontend_file="f.onnx",
    decoder_file="d.onnx",
    frontend_bytes=1,
    decoder_bytes=2,
    latent_name="z",
    mask_name="m",
    hop_samples=256,
)


class Splitter:
    """Writes two small files and counts how often it was asked."""

    def __init__(self, *, meanwhile=lambda: None) -> None:
        self.num_calls = 0
        self._meanwhile = meanwhile

    def __call__(self, model_path: Path, folder: Path) -> SplitGraphs:
        self.num_calls += 1
        (folder / "f.onnx").write_bytes(b"f")
        (folder / "d.onnx").write_bytes(b"dd")
        self._meanwhile()
        return FACTS


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"weights")
    return path


def cached(model: Path, cache: Path, splitter: Splitter, *, splitter_id: str = "s1"):
    return cached_split(model, cache, splitter_id=splitter_id, split=splitter)


def test_the_second_start_cuts_nothing(model, tmp_path):
    """Facts and files of the first are found by the second."""
    splitter = Splitter()

    first = cached(model, tmp_path / "c", splitter)
    second = cached(model, tmp_path / "c", splitter)

    assert (1, first) == (splitter.num_calls, second)
    assert b"dd" == (second[1] / "d.onnx").read_bytes()


def test_another_model_or_splitter_gets_a_folder_of_its_own(model, tmp_path):
    """The key is the content of the model and the name of the splitter."""
    folders = {cached(model, tmp_path / "c", Splitter())[1]}
    folders.add(cached(model, tmp_path / "c", Splitter(), splitter_id="s2")[1])
    model.write_bytes(b"other weights")
    folders.add(cached(model, tmp_path / "c", Splitter())[1])

    assert 3 == len(folders)


def test_of_two_that_start_at_once_the_first_to_end_is_kept(model, tmp_path):
    """The other uses it and leaves nothing of its own behind."""
    winner = Splitter()
    loser = Splitter(meanwhile=lambda: cached(model, tmp_path / "c", winner))

    facts, folder = cached(model, tmp_path / "c", loser)

    assert (FACTS, 1, 1) == (facts, winner.num_calls, loser.num_calls)
    assert [folder.name] == [each.name for each in folder.parent.iterdir()]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "d.onnx").write_bytes(b"d"),
        lambda folder: (folder / "f.onnx").unlink(),
        lambda folder: (folder / "facts.json").write_text("{"),
        lambda folder: (folder / "facts.json").write_text('{"hop": 1}'),
        lambda folder: (folder / "facts.json").write_text("[]"),
    ],
)
def test_a_damaged_folder_is_made_anew(model, tmp_path, damage):
    """A short or missing file or unreadable facts never reach the voice."""
    _, folder = cached(model, tmp_path / "c", Splitter())
    damage(folder)
    splitter = Splitter()

    facts, again = cached(model, tmp_path / "c", splitter)

    assert (1, FACTS, folder, b"dd") == (
        splitter.num_calls,
        facts,
        again,
        (again / "d.onnx").read_bytes(),
    )
    assert [folder.name] == [each.name for each in folder.parent.iterdir()]


def test_a_cache_that_cannot_be_written_is_one_clear_line(model, tmp_path):
    """A file stands where the folder should be: the line names it and the way out."""
    (tmp_path / "c").write_text("a file")

    with pytest.raises(CacheFolderError, match=r"c/piper-split: cannot .* EARWITNESS_CACHE"):
        cached(model, tmp_path / "c", Splitter())


def test_a_splitter_that_fails_leaves_nothing_behind(model, tmp_path):
    """No half folder could be taken for a whole one."""

    def stop() -> None:
        raise ValueError("not a voice")

    with pytest.raises(ValueError, match="not a voice"):
        cached(model, tmp_path / "c", Splitter(meanwhile=stop))

    assert [] == list((tmp_path / "c" / "piper-split").iterdir())


def test_the_cache_is_where_the_environment_says():
    """$EARWITNESS_CACHE first, then the XDG folder, then the home folder."""
    both = {"EARWITNESS_CACHE": "/a", "XDG_CACHE_HOME": "/x"}

    assert [Path("/a"), Path("/x/earwitness"), Path.home() / ".cache/earwitness"] == [
        cache_folder(both),
        cache_folder({"XDG_CACHE_HOME": "/x"}),
        cache_folder({}),
    ]
