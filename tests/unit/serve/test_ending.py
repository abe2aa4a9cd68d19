# SPDX-License-Identifier: Apache-2.0
"""The end that asks nobody takes every process below along."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from dpfedge.serve.ending import descendants

TREE = """
import os, subprocess, sys
inner = "import sys; print('up', flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", inner], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
from dpfedge.serve.ending import die_at_once
die_at_once(7)
"""


def stat(proc: Path, pid: int, name: str, parent: int) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0")


def test_descendants__are_all_below_parents_first(tmp_path: Path) -> None:
    """Grandchildren too; a name may hold brackets and spaces; strangers are none of it."""
    for pid, name, parent in ((1, "init", 0), (5, "a) S 9 (b", 1), (6, "c", 5), (7, "d", 6), (8, "e", 1)):
        stat(tmp_path, pid, name, parent)

    assert descendants(5, tmp_path) == [6, 7]
    found = descendants(1, tmp_path)
    assert (sorted(found[:2]), found[2:]) == ([5, 8], [6, 7])
    assert descendants(8, tmp_path) == []


def test_die_at_once__takes_children_along() -> None:
    """The code is the one given; the child, which nobody asked, is gone."""
    command = [sys.executable, "-c", TREE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        child = int(process.stdout.readline())
        fd = os.pidfd_open(child)
        try:
            process.stdin.close()
            assert process.wait(30) == 7
            assert select.select([fd], [], [], 30)[0]
        finally:
            os.close(fd)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
