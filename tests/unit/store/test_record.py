# SPDX-License-Identifier: Apache-2.0
"""Records of installed packages, and whether they still hold."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dpfedge.errors import StoreError
from dpfedge.signing import Signer
from dpfedge.store import record as module
from dpfedge.store.record import Installed, Stamp, Verified, boot_id, read_record, write_record
from dpfedge.store.sample import Sample

ID = "0" * 64


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """A file that was just verified."""
    path = tmp_path / f"{ID}.dpfbin"
    path.write_bytes(b"x" * 100)
    verified = Verified(Signer("ab", "oem"), "passed", Stamp.of(path), boot_id(), Sample(4096, {0: 5}))
    return Installed(ID, "voice", "1", "ff", path, verified)


def test_record__is_read_as_written(tmp_path: Path, installed: Installed) -> None:
    """Also without a signer; `--json` leaves out the pages."""
    write_record(tmp_path / "r", installed)

    assert read_record(tmp_path / "r", installed.path) == installed
    assert installed.as_json()["verified"]["signer"] == {"key_id": "ab", "name": "oem"}
    assert "sample" not in json.dumps(installed.as_json())


@pytest.mark.parametrize("text", ["", "\0" * 600, "[]", "{}", '{"format": 1, "id": "../x"}', '{"format": 1}'])
def test_read_record__damaged(tmp_path: Path, installed: Installed, text: str) -> None:
    """Zero-filled, cut, or of another file."""
    (tmp_path / "r").write_text(text)

    with pytest.raises(StoreError, match=r"r: the record of an installed package is damaged; found .*; install"):
        read_record(tmp_path / "r", installed.path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"window": 4096', '"window": 1e999'), ('"window": 4096', '"window": -1'), (" 0,\n", " -4096,\n"),
        (" 0,\n", f" {1 << 70},\n"), ('"passed"', "7"), ('"passed"', "[]"), ('"key_id": "ab"', '"key_id": "zz"'),
        ('"key_id": "ab"', '"key_id": [1]'), ('"key_id": "ab"', f'"key_id": {"[" * 100_000}'),
    ],
)  # fmt: skip
def test_read_record__hostile_values(tmp_path: Path, installed: Installed, old: str, new: str) -> None:
    """JSON of the right form whose values nothing could have written."""
    write_record(tmp_path / "r", installed)
    text = (tmp_path / "r").read_text()
    (tmp_path / "r").write_text(text.replace(old, new, 1))

    assert (tmp_path / "r").read_text() != text
    with pytest.raises(StoreError, match=r"r: the record of an installed package is damaged; found .*; install"):
        read_record(tmp_path / "r", installed.path)


def test_read_record__missing_or_of_a_newer_store(tmp_path: Path, installed: Installed) -> None:
    """Each is named."""
    with pytest.raises(StoreError, match="cannot be read: No such file or directory; install the package again"):
        read_record(tmp_path / "r", installed.path)
    (tmp_path / "r").write_text('{"format": 2}')
    with pytest.raises(StoreError, match="another version of the store; found 2; allowed 1"):
        read_record(tmp_path / "r", installed.path)


def test_state__of_a_file_that_was_touched(installed: Installed) -> None:
    """A write with the old time put back shows in the change time; a cut in the size."""
    assert installed.state() == "unchanged"
    status = installed.path.stat()
    installed.path.write_bytes(b"y" * 100)
    os.utime(installed.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert installed.state() == "changed"
    installed.path.unlink()
    with pytest.raises(StoreError, match="the installed file cannot be read: No such file or directory"):
        installed.state()


def test_state__after_a_new_boot(installed: Installed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another boot id, or none at all."""
    monkeypatch.setattr(module, "BOOT_ID", tmp_path / "missing")

    assert boot_id() == ""
    assert installed.state() == "new boot"
