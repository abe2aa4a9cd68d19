# SPDX-License-Identifier: Apache-2.0
"""Libraries loaded in a child; those here are fakes made of our own."""

from __future__ import annotations

from pathlib import Path

import pytest
import standin

from dpfedge import _core
from dpfedge.backend import loader
from dpfedge.backend.loader import import_error, load_error, missing_library

OURS = Path(_core.__file__)


def wanting(place: Path, name: bytes) -> Path:
    """A library that needs `name` instead of the C library."""
    place.write_bytes(OURS.read_bytes().replace(b"libc.so.6", name))
    return place


def test_load_error__names_what_is_missing(tmp_path: Path) -> None:
    """As the loader says it; nothing is said of a library that loads, or of one before it that is not there."""
    broken = wanting(tmp_path / "broken.so", b"libx.so.6")

    error = load_error([tmp_path / "none.so", broken])
    assert missing_library(error) == "libx.so.6"
    assert load_error([tmp_path / "none.so", OURS]) == ""
    assert load_error([OURS, tmp_path / "none.so"]) == f"{tmp_path / 'none.so'} is not there"
    assert missing_library(load_error(["libnobodyhas.so.9"])) == "libnobodyhas.so.9"
    assert missing_library("loading it takes more than 30 s") is None


def test_load_error__with_folders_at_hand(tmp_path: Path) -> None:
    """What is needed may lie in one of them."""
    broken = wanting(tmp_path / "broken.so", b"libx.so.6")
    folder = tmp_path / "libraries"
    folder.mkdir()
    (folder / "libx.so.6").write_bytes(OURS.read_bytes())
    assert "libx.so.6" not in load_error([broken], [folder])


def test_load_error__of_what_hangs_or_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child ends; this process does not."""
    monkeypatch.setattr(loader, "_TIMEOUT_S", 0.2)
    monkeypatch.setattr(loader, "_CODE", "import time; time.sleep(60)")
    assert load_error([tmp_path]) == "loading it takes more than 0.2 s"
    monkeypatch.setattr(loader, "_TIMEOUT_S", 20.0)
    monkeypatch.setattr(loader, "_CODE", "import os; os.abort()")
    assert load_error([tmp_path]) == "loading it ends the process by signal 6"


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ("print", ""),
        ("bytes", ""),
        ("fork", ""),
        ("exit", "loading it ends the process (0)"),
        ("crash", "loading it ends the process by signal 11"),
    ],
)
def test_load_error__of_what_a_library_does_when_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, load: str, words: str
) -> None:
    """Ending the process as if all were well is no loading; printing, and leaving a process behind, are."""
    monkeypatch.setenv("STANDIN", f"load={load}")

    assert load_error([standin.build("nvml.c", "libnvidia-ml.so.1") / "libnvidia-ml.so.1"]) == words


def test_import_error__of_a_module() -> None:
    """By its name, in Python's words."""
    assert import_error("json") == ""
    assert import_error("nobody_has_this") == "ModuleNotFoundError: No module named 'nobody_has_this'"
