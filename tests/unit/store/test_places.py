# SPDX-License-Identifier: Apache-2.0
"""Where a store is, and how names become file names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpfedge.errors import StoreError, UsageError
from dpfedge.store.places import Places, default_root, runtime_folder, search_roots


def test_default_root__is_named_else_the_systems_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order; a relative XDG_DATA_HOME does not count."""
    missing = tmp_path / "missing"
    monkeypatch.setenv("HOME", "/home/a")

    assert default_root({"DPFEDGE_STORE": "/x y"}, tmp_path) == Path("/x y")
    assert default_root({}, tmp_path) == tmp_path
    assert default_root({"XDG_DATA_HOME": "/data"}, missing) == Path("/data/dpfedge/store")
    assert default_root({"XDG_DATA_HOME": "data"}, missing) == Path("/home/a/.local/share/dpfedge/store")


def test_search_roots__include_a_system_store_one_may_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the environment says where to look."""
    own = {"XDG_DATA_HOME": "/data"}
    assert search_roots(own, tmp_path) == (tmp_path,)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert search_roots(own, tmp_path) == (Path("/data/dpfedge/store"), tmp_path)
    assert search_roots(own, tmp_path / "missing") == (Path("/data/dpfedge/store"),)
    assert search_roots({"DPFEDGE_STORE": "/x"}, tmp_path) == (Path("/x"),)


def test_runtime_folder__is_the_users_own() -> None:
    """Also without XDG_RUNTIME_DIR."""
    assert runtime_folder({"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/user/7/dpfedge")
    assert runtime_folder({}) == Path(f"/tmp/dpfedge-{os.getuid()}")
    assert runtime_folder({"TMPDIR": "/run/t"}) == Path(f"/run/t/dpfedge-{os.getuid()}")


def test_runtime_folder__where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same for every process of a user; who writes there says that it cannot."""
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", list)

    assert runtime_folder({}).parent == Path("/tmp")


def test_slots__of_names_with_a_slash_lie_in_the_same_folder(tmp_path: Path) -> None:
    """And are found again; other files there are no names."""
    places = Places(tmp_path)
    places.names.mkdir()
    for name in ("oem/voice", "voice"):
        places.slots(name).write_text("{}")
    (places.names / ".voice.json.new").write_text("")
    (places.names / "notes.txt").write_text("")

    assert list(places.known_names()) == ["oem/voice", "voice"]
    assert places.slots("oem/voice").parent == places.names


def test_known_names__of_a_store_that_cannot_be_read(tmp_path: Path) -> None:
    """No traceback; no store at all is an empty one."""
    assert list(Places(tmp_path / "missing").known_names()) == []
    (tmp_path / "names").write_text("")
    with pytest.raises(StoreError, match="names: the store cannot be read: Not a directory"):
        list(Places(tmp_path).known_names())


@pytest.mark.parametrize("name", ["../voice", "", ".voice", "a~b", "/etc/passwd"])
def test_slots__of_what_cannot_be_a_name(tmp_path: Path, name: str) -> None:
    """Nothing leads out of the store."""
    with pytest.raises(UsageError, match="cannot be the name of a package; found"):
        Places(tmp_path).slots(name)
