# SPDX-License-Identifier: Apache-2.0
"""Starting and ending the stages' warmed parent; what it does is in test_zygote.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpfedge.pipeline import parent
from dpfedge.pipeline.parent import Zygote


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_import__is_light() -> None:
    """It is started before numpy, onnxruntime and the rest are imported here."""
    code = (
        "import sys, dpfedge.pipeline.parent;"
        "sys.exit(str(sorted({'numpy', 'onnxruntime', 'cbor2', 'asyncio'} & set(sys.modules)) or ''))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""


def test_zygote__that_cannot_start_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory or process for it: the error is the caller's, the sockets are closed."""
    monkeypatch.setattr(parent.sys, "executable", "/nonexistent/python")
    before = open_files()

    with pytest.raises(FileNotFoundError):
        Zygote()
    assert open_files() == before


def test_zygote__ignores_modules_of_the_callers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `json.py` where the user stands is not imported by the stages."""
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    one = Zygote()
    one.control.close()

    assert one.process.wait(60) == 0


def test_zygote__is_not_ended_by_an_early_ctrl_c() -> None:
    """While its interpreter starts, too: the supervisor decides, and no traceback of it is printed."""
    one = Zygote()
    os.kill(one.process.pid, signal.SIGINT)
    one.control.close()

    assert one.process.wait(60) == 0
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_stop__kills_a_parent_that_does_not_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace it is gone, whatever it does."""
    script = tmp_path / "deaf"
    script.write_text("#!/bin/sh\nexec sleep 1000\n")
    script.chmod(0o755)
    monkeypatch.setattr(parent.sys, "executable", str(script))
    one = Zygote()
    one.stop(0.05)

    assert one.process.returncode == -9
