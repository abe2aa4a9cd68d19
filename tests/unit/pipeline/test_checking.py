# SPDX-License-Identifier: Apache-2.0
"""Weights that are checked while they are loaded."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dpfedge.errors import DigestError, PackageError
from dpfedge.package import Package, PackageWriter, open_package, verify
from dpfedge.pipeline.checking import Checking, is_weights


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A package with a graph and weights."""
    with PackageWriter(tmp_path / "p.dpfbin", name="p", version="1") as writer:
        writer.add("graph", "graph", b"graph")
        writer.add("weights", "weights", bytes(range(256)) * 64)
        writer.finish({})
    return tmp_path / "p.dpfbin"


def flip(path: Path, section: str) -> Package:
    """The package with a bit of a section flipped, opened fast."""
    with open_package(path, check="fast") as package:
        at = package.find(section).offset
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    return open_package(path, check="fast")


def test_checking__passes_what_is_right(path: Path) -> None:
    """The verdict is there after the wait."""
    with open_package(path, check="fast") as package:
        checking = Checking(package)
        checking.wait()
        assert checking.passed
        checking.stop()


def test_checking__names_damaged_weights(path: Path) -> None:
    """Nobody may be answered."""
    with flip(path, "weights") as package:
        checking = Checking(package)
        with pytest.raises(DigestError, match=r"section 'weights', bytes .*: section is damaged, its SHA-256 differs"):
            checking.wait()
        assert not checking.passed
        checking.stop()


def test_checking__leaves_what_is_parsed_to_the_check_before(path: Path) -> None:
    """A graph is not weights."""
    with flip(path, "graph") as package:
        checking = Checking(package)
        checking.wait()
        checking.stop()
        with pytest.raises(DigestError, match="section 'graph'"):
            verify.check_content(package, lambda section: not is_weights(section))


def test_checking__reads_the_file_that_was_opened(path: Path) -> None:
    """Not the one that has its name now."""
    with flip(path, "weights") as package:
        good = path.with_name("good")
        good.write_bytes(b"another file")
        os.replace(good, path)
        checking = Checking(package)
        with pytest.raises(DigestError):
            checking.wait()
        checking.stop()


def test_stop__gives_the_check_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that is stopped while it starts does not wait for gigabytes."""
    begun, go_on, check = threading.Event(), threading.Event(), verify.check_content

    def slow(package: Package, *only: object, **options: object) -> None:
        begun.set()
        go_on.wait()
        check(package, *only, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(verify, "check_content", slow)
    with open_package(path, check="fast") as package:
        checking = Checking(package)
        begun.wait()
        threading.Timer(0.05, go_on.set).start()
        checking.stop()
        with pytest.raises(PackageError, match="the check was given up"):
            checking.wait()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_wait__never_waits_for_a_thread_that_broke(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is no pass."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(verify, "check_content", broken)
    with open_package(path, check="fast") as package:
        checking = Checking(package)
        with pytest.raises(PackageError, match="the check ended unexpectedly"):
            checking.wait()
        assert not checking.passed
        checking.stop()


def test_checking__in_a_process_that_is_nicer_already(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nice -n 15 dpfedge serve` by somebody who may not go back to 10: it stays at 15, and nobody waits for ever."""

    def refused(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr("dpfedge.pipeline.checking.os.getpriority", lambda which, who: 15)
    monkeypatch.setattr("dpfedge.pipeline.checking.os.setpriority", refused)
    with open_package(path, check="fast") as package:
        checking = Checking(package)
        checking.wait()
        checking.stop()
