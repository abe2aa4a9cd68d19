# SPDX-License-Identifier: Apache-2.0
"""The cache: where it lies, that only verified files get a name, and that changed files are noticed."""

from __future__ import annotations

import hashlib
import pwd
from collections.abc import Mapping
from pathlib import Path

import pytest

from dpfedge.errors import FetchError
from dpfedge.models import cache
from dpfedge.models.catalogue import CatalogueModel

DATA = bytes(range(256)) * 40


@pytest.fixture
def model(wheel_models: Mapping[str, CatalogueModel]) -> CatalogueModel:
    """A model of one file."""
    return wheel_models["tiny"]


def test_root__order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DPFEDGE_HOME, then XDG_CACHE_HOME where absolute, then the home folder."""
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("DPFEDGE_HOME", "/d")
    assert cache.root() == Path("/d/models")
    monkeypatch.delenv("DPFEDGE_HOME")
    assert cache.root() == Path("/x/dpfedge/models")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.root() == Path("/h/.cache/dpfedge/models")


def test_root__no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without any home folder hears what to set."""

    def unknown(uid: int) -> object:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME", "DPFEDGE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)

    with pytest.raises(FetchError, match=r"no home folder for the model cache; .*set DPFEDGE_HOME"):
        cache.root()


def test_place__then_not_missing(model: CatalogueModel) -> None:
    """A placed file has its content and is not missing."""
    (file,) = cache.missing(model)
    path = cache.place(model, file, [DATA[:100], DATA[100:]], "here")

    assert path.read_bytes() == DATA
    assert cache.missing(model) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DATA[:-1], "here: weights.bin has a wrong size; found 10239; allowed 10240"),
        (DATA + b"!", "here: weights.bin has a wrong size; found more than 10240"),
        (DATA[:-1] + b"!", "here: weights.bin has a wrong SHA-256"),
    ],
)
def test_place__wrong_content(model: CatalogueModel, data: bytes, message: str) -> None:
    """Content that is not what the catalogue promises leaves nothing behind."""
    with pytest.raises(FetchError) as caught:
        cache.place(model, model.files["weights.bin"], [data], "here")

    assert str(caught.value).startswith(message)
    assert list(cache.folder(model).iterdir()) == []


def test_missing__changed_file(model: CatalogueModel) -> None:
    """A file that was changed after its digest was checked is missing again, also with the same length."""
    cache.place(model, model.files["weights.bin"], [DATA], "here")
    assert cache.missing(model) == []
    path = cache.folder(model) / "weights.bin"
    path.write_bytes(DATA[:-1] + b"!")

    assert [file.name for file in cache.missing(model)] == ["weights.bin"]


def test_missing__hashes_once(model: CatalogueModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest of an unchanged file is taken once, not on each use."""
    cache.place(model, model.files["weights.bin"], [DATA], "here")
    counted: list[Path] = []

    def count(path: Path) -> str:
        counted.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(cache, "_sha256", count)
    for _ in range(3):
        assert cache.missing(model) == []
    assert len(counted) == 1
    (cache.folder(model) / ".verified.json").write_bytes(b"\xff[")
    assert cache.missing(model) == []
    assert len(counted) == 2


def test_writable__says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: CatalogueModel) -> None:
    """A cache that cannot be written names the place and the variable."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("DPFEDGE_HOME", str(tmp_path / "file"))

    with pytest.raises(FetchError, match=r"cannot write the model cache: Not a directory; .*set DPFEDGE_HOME"):
        cache.place(model, model.files["weights.bin"], [DATA], "here")


def test_workspace__cleans_up(cache_home: Path) -> None:
    """What a killed process left is removed first, and nothing stays behind."""
    left = cache_home / "models" / ".key.work"
    left.mkdir(parents=True)
    (left / "old").touch()

    with cache.workspace("key") as folder:
        assert list(folder.iterdir()) == []
        (folder / "new").touch()

    assert not left.exists()


def test_remove__counts_bytes(model: CatalogueModel) -> None:
    """Removing gives back the bytes; removing again gives nothing."""
    cache.place(model, model.files["weights.bin"], [DATA], "here")

    assert cache.remove(model) == len(DATA)
    assert cache.remove(model) == 0
