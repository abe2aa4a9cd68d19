# SPDX-License-Identifier: Apache-2.0
"""Reading files below a root."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dpfedge import limits
from dpfedge.hardware.source.root import Root, core_list, label, whole


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


@pytest.mark.parametrize("text", ["9" * 21, "9" * 5000, "f" * 5000])
def test_number__that_is_too_long_is_none(tmp_path: Path, text: str) -> None:
    """A recording is foreign data: no name, digest or multiplication is made of five thousand digits."""
    (tmp_path / "number").write_text(text)
    root = Root(tmp_path)
    assert root.number("number", 16) is None
    assert root.unreadable["number"].startswith("no number: ")
    for most, base in (("18446744073709551615", 10), ("-9223372036854775808", 10), ("0xffffffffffffffff", 16)):
        (tmp_path / "number").write_text(f"{most}\n")
        assert root.number("number", base) == int(most, base)


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
    root.live = True
    try:
        assert root.text("sys/gated") is None
    finally:
        os.close(writer)
    assert root.unreadable == {"sys/gated": "Resource temporarily unavailable"}


def test_bytes__of_a_recording_are_files_only(root: Root) -> None:
    """A pipe, a socket or a device in a recording is never opened."""
    os.mkfifo(os.path.join(root.path, "sys/pipe"))
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(os.path.join(root.path, "sys/socket")))

    assert (root.text("sys/pipe"), root.text("sys/socket")) == (None, None)
    assert root.unreadable == {"sys/pipe": "a pipe, not a file", "sys/socket": "a socket, not a file"}


def test_bytes__are_bounded(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that never ends stops at the limit."""
    monkeypatch.setattr(limits, "PROBE_FILE_MAX_BYTES", 4)

    assert root.bytes("sys/word") == b"tj-t"
    assert root.unreadable == {"sys/word": "only its first 4 bytes were read"}


def test_names__are_bounded(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that never ends stops at the limit."""
    monkeypatch.setattr(limits, "PROBE_ENTRIES_MAX", 2)

    assert len(root.names("sys")) == 2
    assert root.unreadable == {"sys": "only 2 of its entries were read"}


@pytest.mark.parametrize("target", ["/etc/hostname", "../../../../etc/hostname", "../out2", "../folder/hostname"])
def test_place__links_do_not_leave_a_recording(root: Root, target: str) -> None:
    """A recording cannot make the reader open this machine's files: its folder is the root of every link in it."""
    os.symlink(target, os.path.join(root.path, "sys/out"))
    os.symlink("/etc/hostname", os.path.join(root.path, "out2"))
    os.symlink("/etc", os.path.join(root.path, "folder"))

    assert root.text("sys/out") is None
    assert (root.names("folder"), root.has("folder")) == ((), False)
    os.mkdir(os.path.join(root.path, "etc"))
    Path(root.path, "etc/hostname").write_text("recorded\n")
    assert root.text("sys/out") == "recorded"
    assert Root(root.path).names("folder") == ("hostname",)


def test_place__links_inside_a_recording_work(root: Root) -> None:
    """As in /sys, where most folders are links with many steps upwards."""
    place = Path(root.path, "sys/devices/pci0/0000:01:00.0")
    place.mkdir(parents=True)
    (place / "vendor").write_text("0x10de\n")
    Path(root.path, "sys/bus/pci/devices").mkdir(parents=True)
    Path(root.path, "sys/bus/pci/devices/0000:01:00.0").symlink_to("../../../devices/pci0/0000:01:00.0")

    assert root.names("sys/bus/pci/devices") == ("0000:01:00.0",)
    assert root.number("sys/bus/pci/devices/0000:01:00.0/vendor", 16) == 0x10DE


def test_link__says_where_it_leads_and_follows_nothing(root: Root) -> None:
    """As it is written; a file and what is missing are no links."""
    place = Path(root.path)
    (place / "name").symlink_to("../no/where")
    (place / "file").write_text("")
    found = [root.link(name) for name in ("name", "file", "missing", "missing/name")]
    assert found == ["../no/where", None, None, None]


def test_place__links_in_a_circle_end(root: Root) -> None:
    """As the kernel does, with a note."""
    for name, target in (("a", "b"), ("b", "a"), ("deep", "deep/deep")):
        os.symlink(target, os.path.join(root.path, name))

    assert (root.text("a"), root.names("b"), root.text("deep/x")) == (None, (), None)
    assert root.unreadable == dict.fromkeys(("a", "b", "deep/x"), "too many links")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("18", 18),
        ("-1", None),
        ("", None),
        ("1_0", None),
        ("٣", None),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
    ],
)
def test_whole__is_strict(text: str, number: int | None) -> None:
    """Plain digits that fit 64 bits, nothing Python would take besides."""
    assert whole(text) == number


def test_label__has_nothing_a_terminal_obeys() -> None:
    """Names from a recording end up in messages."""
    assert label("a\x1b[31m\nb\u202e") == "a?[31m?b?"
    assert len(label("x" * 1000)) == 200


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
