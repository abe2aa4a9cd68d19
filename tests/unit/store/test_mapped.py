# SPDX-License-Identifier: Apache-2.0
"""Files that running processes have mapped or open."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from dpfedge.store.mapped import in_use


def test_in_use__finds_mapped_and_open_files(tmp_path: Path) -> None:
    """Also one whose path has a space or a newline, and one found by its number under another path."""
    mapped, opened, free = (tmp_path / name for name in ("a b\nü", "open", "free"))
    for path in (mapped, opened, free):
        path.write_bytes(b"x" * 4096)
    fd = os.open(mapped, os.O_RDONLY)
    view = mmap.mmap(fd, 4096, prot=mmap.PROT_READ)
    os.close(fd)
    other = tmp_path / "hard link"
    other.hardlink_to(mapped)
    with opened.open("rb"):
        found = in_use([mapped, opened, free, other, tmp_path / "missing"])
    view.close()

    assert found[mapped] == found[opened] == [os.getpid()] or found[other] == [os.getpid()]
    assert free not in found
    assert in_use([mapped, opened, free]) == {}


def test_in_use__reads_a_recorded_proc(tmp_path: Path) -> None:
    """Processes that ended while they were looked at are none."""
    file = tmp_path / "file"
    file.write_bytes(b"x")
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "8").mkdir()
    line = f"7f00-7f01 r--s 00000000 fe:00 {file.stat().st_ino}    {file}\n7ffc-7ffd rw-p 00000000 00:00 0\n"
    (tmp_path / "proc" / "7" / "maps").write_text(line)

    assert in_use([file], tmp_path / "proc") == {file: [7]}
    assert in_use([], tmp_path / "proc") == {}
