# SPDX-License-Identifier: Apache-2.0
"""Reading files below a root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpfedge import limits
from dpfedge.hardware.source.root import Root, core_list


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A recording with a few files."""
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys/number").write_text("0x10de\n")
    (tmp_path / "sys/word").write_text("tj-thermal\n")
    (tmp_path / "sys/list").write_bytes(b"a,b\0c\0")
    return Root(tmp_path)


def test_root__reads_what_is_there(root: Root) -> None:
    """Text loses its line end, numbers take a base, string lists split at NUL, folders list in order."""
    assert root.text("sys/word") == "tj-thermal"
    assert root.number("sys/number", 16) == 0x10DE
    assert root.texts("sys/list") == ("a,b", "c")
    assert root.names("sys") == ("list", "number", "word")
    assert root.has("sys/word")
    assert root.unreadable == {}


def test_root__missing_is_nothing(root: Root) -> None:
    """A path that is not there is no error and leaves no note."""
    assert (root.text("no"), root.number("no"), root.texts("no"), root.names("no"), root.has("no")) == (
        None, None, (), (), False,
    )  # fmt: skip
    assert root.unreadable == {}


def test_number__of_text_is_noted(root: Root) -> None:
    """A file without a number gives None and says what it held."""
    assert root.number("sys/word") is None
    assert root.unreadable == {"sys/word": "no number: 'tj-thermal'"}


def test_bytes__of_a_folder_is_noted(root: Root) -> None:
    """An error of the kernel other than absence is kept by name."""
    assert root.bytes("sys") is None
    assert root.unreadable == {"sys": "Is a directory"}


def test_bytes__gated_sensor_does_not_block(root: Root) -> None:
    """A source that would block (EAGAIN, as a gated thermal zone) is noted instead of waited for."""
    os.mkfifo(os.path.join(root.path, "sys/gated"))
    writer = os.open(os.path.join(root.path, "sys/gated"), os.O_RDWR)
    try:
        assert root.text("sys/gated") is None
    finally:
        os.close(writer)
    assert root.unreadable == {"sys/gated": "Resource temporarily unavailable"}


def test_bytes__are_bounded(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that never ends stops at the limit."""
    monkeypatch.setattr(limits, "PROBE_FILE_MAX_BYTES", 4)

    assert root.bytes("sys/word") == b"tj-t"


@pytest.mark.parametrize("target", ["/etc/hostname", "../../../../etc/hostname"])
def test_place__links_do_not_leave_a_recording(root: Root, target: str) -> None:
    """A recording cannot make the reader open this machine's files."""
    os.symlink(target, os.path.join(root.path, "sys/out"))

    assert root.text("sys/out") is None
    assert root.unreadable == {"sys/out": "the link leaves the recording"}


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0-3,8\n", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), (None, ()), ("x", ()), ("3-", (3,)), ("-1", ()),
        ("0-99999999", ()), ("3-1", ()),
    ],
)  # fmt: skip
def test_core_list__of_kernel_lists(text: str | None, cores: tuple[int, ...]) -> None:
    """Kernel lists are read; anything else, and absurd ranges, give none."""
    assert core_list(text) == cores
