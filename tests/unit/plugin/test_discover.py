# SPDX-License-Identifier: Apache-2.0
"""Entry points as `importlib.metadata` sees them, without importing it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from dpfedge.plugin.discover import Distribution, Point, installed


@pytest.mark.parametrize("group", ["dpfedge", "console_scripts", "pytest11", "no.such.group"])
def test_installed__is_what_the_standard_library_finds(group: str) -> None:
    """Same names, values and distributions for everything installed here."""
    ours = {(point.name, point.value, point.dist.name, point.dist.version) for point in installed(group)}
    theirs = {
        (point.name, point.value, point.dist.name, point.dist.version)
        for point in entry_points(group=group)
        if point.dist is not None
    }

    assert ours == theirs


def distribution(folder: Path, name: str, points: str, version: str = "1.0", kind: str = "dist-info") -> None:
    """The metadata folder of a distribution."""
    place = folder / f"{name.replace('-', '_')}-{version}.{kind}"
    place.mkdir(parents=True)
    file = "METADATA" if kind == "dist-info" else "PKG-INFO"
    (place / file).write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: not this\n")
    (place / "entry_points.txt").write_text(points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that alone is on `sys.path`."""
    (tmp_path / "site").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), str(tmp_path / "none.zip"), str(tmp_path / "site")])
    return tmp_path / "site"


def test_installed__reads_sections_and_comments(site: Path) -> None:
    """Other groups, comments and extras are no part of a point."""
    text = "# [dpfedge]\n[other]\nno = x\n\n[dpfedge]\n; no = x\n a = mod:thing.part [extra] \nb=mod\n[z]\nno = x\n"
    distribution(site, "Acme-GPU", text, "2.1")
    distribution(site, "old", "[dpfedge]\nc = m\n", kind="egg-info")
    distribution(site, "broken", "[dpfedge]\nno value\n")

    assert installed("dpfedge") == (
        Point("a", "mod:thing.part", Distribution("Acme-GPU", "2.1")),
        Point("b", "mod", Distribution("Acme-GPU", "2.1")),
        Point("c", "m", Distribution("old", "1.0")),
    )


def test_installed__first_copy_counts(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that lies on two places of the path is the one that would be imported."""
    distribution(tmp_path / "later", "acme", "[dpfedge]\na = later\n", "9.0")
    distribution(site, "acme", "[dpfedge]\na = first\n")
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "later")])

    assert [(point.value, point.dist.version) for point in installed("dpfedge")] == [("first", "1.0")]


def test_installed__sees_what_was_installed_meanwhile(site: Path) -> None:
    """What was read is kept only as long as the folders stay as they were."""
    assert installed("dpfedge") == ()
    distribution(site, "acme", "[dpfedge]\na = m\n")
    os.utime(site, ns=(1, 1))  # two changes within one tick of the clock would look like one

    assert [point.name for point in installed("dpfedge")] == ["a"]


def test_load__imports_what_is_named() -> None:
    """A module, or something in it; what the import raises is the caller's."""
    dist = Distribution("x", "1")

    assert Point("a", "os.path:join", dist).load() is os.path.join
    assert Point("a", "os.path", dist).load() is os.path
    with pytest.raises(ImportError):
        Point("a", "no_such_module_at_all", dist).load()


def test_discover__imports_little() -> None:
    """The point of it: no mail parser, no archives."""
    code = (
        "import sys; from dpfedge.plugin.manager import load_plugins; load_plugins(); "
        "sys.exit(str(sorted({'importlib.metadata', 'email', 'zipfile', 'socket'} & set(sys.modules)) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr.strip() in ("", "[]")
