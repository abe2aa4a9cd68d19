# SPDX-License-Identifier: Apache-2.0
"""Downloading a wheel with pip from a local folder, and reading members of it."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from dpfedge.errors import FetchError
from dpfedge.models import wheel
from dpfedge.models.catalogue import File, Source

SOURCE = Source("wheel", "tiny-model", "1.0", 500, ("manylinux_2_34_x86_64",))


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replaces pip by a program that records its options and fails as pip does without a fitting wheel."""
    seen: list[list[str]] = []

    def record(source: Source, folder: Path, options: list[str], on_bytes: object) -> str:
        seen.append(options)
        if not options:
            return "ERROR: No matching distribution found for tiny-model==1.0\n"
        (folder / "tiny.whl").touch()
        return ""

    monkeypatch.setattr(wheel, "_pip", record)
    return seen


def test_download__other_platform(commands: list[list[str]], tmp_path: Path) -> None:
    """Where this machine has no wheel, one of another platform is taken for its data files."""
    assert wheel.download(SOURCE, tmp_path, lambda done: None).name == "tiny.whl"
    assert commands == [[], ["--platform", "manylinux_2_34_x86_64"]]


def test_download__network_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A failure that no platform can mend is reported after one try, in pip's last words."""
    tries: list[int] = []

    def fail(*_: object) -> str:
        tries.append(1)
        return "WARNING: Retrying\nERROR: Could not reach the index\n"

    monkeypatch.setattr(wheel, "_pip", fail)

    with pytest.raises(FetchError, match=r"wheel tiny-model 1\.0: .* cannot be downloaded; .*not reach the index"):
        wheel.download(SOURCE, tmp_path, lambda done: None)
    assert len(tries) == 1


def test_download__no_pip_no_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without pip says how to get one."""
    monkeypatch.setattr(wheel.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(wheel.shutil, "which", lambda name: None)

    with pytest.raises(FetchError, match=r"this Python environment has no pip; .*ensurepip"):
        wheel.download(SOURCE, tmp_path, lambda done: None)


def test_pip_command__environment_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pip in the environment, uv runs one for the same interpreter."""
    monkeypatch.setattr(wheel.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(wheel.shutil, "which", lambda name: "/bin/uv")

    assert wheel._pip_command() == ["/bin/uv", "tool", "run", "--python", sys.executable, "pip"]


def test_read_member__content(wheel_file: Path) -> None:
    """Members come out whole."""
    file = File("LICENSE", "tiny_model/LICENSE", "", 0)
    assert b"".join(wheel.read_member(wheel_file, file)) == b"Do what you like\n"


def test_read_member__missing_or_damaged(wheel_file: Path, tmp_path: Path) -> None:
    """An absent member and a damaged archive are FetchErrors that name the wheel."""
    with pytest.raises(FetchError, match="the wheel has no such file; found tiny_model/other"):
        list(wheel.read_member(wheel_file, File("o", "tiny_model/other", "", 0)))
    with zipfile.ZipFile(wheel_file) as archive:
        start = archive.getinfo("tiny_model/weights.bin").header_offset + 60
    data = bytearray(wheel_file.read_bytes())
    data[start : start + 40] = bytes(40)
    wheel_file.write_bytes(data)
    with pytest.raises(FetchError, match="the wheel is damaged"):
        list(wheel.read_member(wheel_file, File("w", "tiny_model/weights.bin", "", 0)))
    wheel_file.write_bytes(b"no zip")
    with pytest.raises(FetchError, match="the wheel is damaged"):
        list(wheel.read_member(wheel_file, File("w", "tiny_model/weights.bin", "", 0)))
