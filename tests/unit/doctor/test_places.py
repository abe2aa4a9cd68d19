# SPDX-License-Identifier: Apache-2.0
"""Folders: all of them named, and those that cannot be used found."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.doctor.places import Place, check_places, places


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Everything below one folder."""
    found = {
        "DPFEDGE_HOME": str(tmp_path / "home"), "DPFEDGE_STORE": str(tmp_path / "store"),
        "DPFEDGE_TRUST": str(tmp_path / "trust"), "XDG_RUNTIME_DIR": str(tmp_path / "run"),
    }  # fmt: skip
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


def test_places__are_those_of_the_environment(environ: dict[str, str], tmp_path: Path) -> None:
    """Each with the variable that moves it."""
    found = {place.name: place for place in places(environ)}

    assert found["models"].path == tmp_path / "home" / "models"
    assert found["store"].path == tmp_path / "store"
    assert found["trust"].path == tmp_path / "trust"
    assert found["run"].path == tmp_path / "run" / "dpfedge"
    assert {"boards", "temporary"} <= set(found)
    assert all(place.variable for place in found.values())


def test_state__of_a_folder(tmp_path: Path) -> None:
    """There, not there yet, or not to be made: a file stands where a folder belongs."""
    (tmp_path / "file").touch(0o600)

    assert Place("a", tmp_path).state == "ok"
    assert Place("b", tmp_path / "new" / "deep").state == "not there yet"
    assert Place("c", Path("/proc/none/deep")).state == "cannot be made below /proc" or Path("/proc").stat().st_uid == 0


def test_check_places__small_shared_memory(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers give 64 MiB or less; where there is none nothing is said."""

    class Small:
        f_bavail, f_frsize = 1024, 4096

    assert list(check_places(environ, tmp_path / "none")) == []
    monkeypatch.setattr("os.statvfs", lambda path: Small)
    (found,) = check_places(environ, tmp_path)
    assert found.level == "warning"
    assert "only 4 MiB are free" in found.what


def test_check_places__unusable(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder, what is wrong, and the variable that moves it."""
    monkeypatch.setattr(Place, "state", property(lambda self: "may not be written" if self.name == "store" else "ok"))

    (found,) = check_places(environ, tmp_path / "none")
    assert str(found) == (
        f"fault: store {tmp_path / 'store'}: may not be written; change its permissions, or set DPFEDGE_STORE"
    )
