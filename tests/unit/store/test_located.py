# SPDX-License-Identifier: Apache-2.0
"""A file or a name: what is meant, how it is opened, and what is said when it is neither."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import DigestError, FormatError, PackageError, StoreError
from dpfedge.package import open_package
from dpfedge.store import Store, locate, record

Make = Callable[..., Path]


def test_locate__a_file_wins_over_a_name(
    store: Store, make: Make, judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of that name does not."""
    one = store.install(make("1"), judge).installed
    monkeypatch.chdir(tmp_path)
    assert locate("voice", store.root).installed == one
    Path("voice").mkdir()
    assert locate("voice", store.root).path == one.path
    Path("voice").rmdir()
    Path("voice").write_bytes(make("2").read_bytes())

    assert locate("voice", store.root).installed is None
    with locate("voice", store.root).open() as package:
        assert package.manifest.version == "2"


def test_locate__nothing(store: Store, make: Make, judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, with the nearest name; a path is a path."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PackageError) as caught:
        locate("voice.dpfbin", store.root)
    assert str(caught.value) == (
        "voice.dpfbin: there is no such file, and no package of this name is installed; "
        f"allowed no name in {store.root}, or a file; see `dpfedge list`, or give the path of a .dpfbin file"
    )
    store.install(make("1"), judge)
    with pytest.raises(PackageError) as caught:
        locate("vioce", store.root)
    assert str(caught.value) == (
        "vioce: there is no such file, and no package of this name is installed; "
        f"allowed voice in {store.root}, or a file; did you mean voice?"
    )
    with pytest.raises(PackageError, match=r"x y\.dpfbin: cannot open the package: No such file"):
        locate("./x y.dpfbin", store.root).open()
    with pytest.raises(PackageError, match="not a regular file"):
        locate(tmp_path, store.root).open()


def test_locate__in_the_systems_store_too(
    store: Store, make: Make, judge: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The user's own wins; an error tells what each has."""
    own = Store(tmp_path / "own")
    one = store.install(make("1"), judge).installed
    monkeypatch.setattr("dpfedge.store.places.search_roots", lambda: (own.root, store.root))
    assert locate("voice").installed == one
    with pytest.raises(PackageError, match=f"allowed no name in {own.root}, voice in {store.root}, or a file; did you"):
        locate("voic")
    mine = own.install(make("2"), judge).installed

    assert (locate("voice").installed, locate("voice").root) == (mine, own.root)


def test_locate__paths_with_spaces_and_unicode(store: Store, make: Make, judge: Any) -> None:
    """Of files and of stores."""
    assert " " in str(store.root)
    store.install(make("1"), judge)
    with locate("voice", store.root).open() as package:
        assert package.path.is_relative_to(store.root)
    with locate(make("1")).open() as package:
        assert "ü" in str(package.path)


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checks that packages are opened with from here on."""
    import importlib

    module = importlib.import_module("dpfedge.store.located")
    checks: list[str] = []

    def note(path: Any, check: Any = "full") -> Any:
        checks.append(check)
        return open_package(path, check=check)

    monkeypatch.setattr(module, "open_package", note)
    return checks


def test_open__checks_as_much_as_is_necessary(
    store: Store, make: Make, judge: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Unchanged: fast. New boot: fast, and a sample. Touched: full. Asked for: full."""
    one = store.install(make("1"), judge).installed
    checks = opened(monkeypatch)
    locate("voice", store.root).open().close()
    locate("voice", store.root).open("full").close()
    monkeypatch.setattr(record, "BOOT_ID", tmp_path / "missing")
    locate("voice", store.root).open().close()
    os.utime(one.path)
    locate("voice", store.root).open().close()

    assert checks == ["fast", "full", "fast", "full"]


def zero(path: Path, start: int, end: int) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


def test_open__zero_filled_in_this_boot(store: Store, make: Make, judge: Any) -> None:
    """The right length, the old modification time: the change time tells, and the full check says where."""
    one = store.install(make("1"), judge).installed
    status = one.path.stat()
    zero(one.path, 65536, 80000)
    os.utime(one.path, ns=(status.st_atime_ns, status.st_mtime_ns))

    with pytest.raises(DigestError, match="section 'weights', bytes 65536 to 135536: section is damaged"):
        locate("voice", store.root).open()


def test_open__zero_filled_by_a_power_loss(
    store: Store, make: Make, judge: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The inode is as recorded, the bytes are not: after a new boot the sample tells."""
    one = store.install(make("1", nbytes=3 << 20), judge).installed
    zero(one.path, 1 << 20, 2 << 20)
    monkeypatch.setattr(record.Stamp, "of", classmethod(lambda cls, path: one.verified.stamp))
    locate("voice", store.root).open().close()  # the same boot: no power was lost
    monkeypatch.setattr(record, "BOOT_ID", tmp_path / "missing")

    with pytest.raises(DigestError) as caught:
        locate("voice", store.root).open()
    assert str(caught.value).startswith(
        f"{one.path}: bytes 1048576 to 1052672: an installed file is damaged, a sampled page differs; found "
    )
    assert str(caught.value).endswith("; install the package again, or `dpfedge rollback`")


def test_open__cut(store: Store, make: Make, judge: Any) -> None:
    """By one byte."""
    one = store.install(make("1"), judge).installed
    one.path.chmod(0o644)
    os.truncate(one.path, one.path.stat().st_size - 1)

    with pytest.raises(FormatError, match="the file was cut"):
        locate("voice", store.root).open()


def test_open__another_package_in_its_place(store: Store, make: Make, judge: Any) -> None:
    """A good one, of the wrong content."""
    one = store.install(make("1"), judge).installed
    os.replace(make("2"), one.path)

    with pytest.raises(DigestError, match="another file lies in the place of an installed one; install the package"):
        locate("voice", store.root).open()


def test_open__gone(store: Store, make: Make, judge: Any) -> None:
    """The file, or its record."""
    one = store.install(make("1"), judge).installed
    one.path.unlink()
    with pytest.raises(StoreError, match="the installed file cannot be read: No such file or directory; install"):
        locate("voice", store.root).open()
    store.places.record(one.id).unlink()
    with pytest.raises(StoreError, match="the record of an installed package cannot be read"):
        locate("voice", store.root)
