# SPDX-License-Identifier: Apache-2.0
"""Starting and ending the stages' warmed parent; what it does is in test_zygote.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
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


OWN = """
import os, signal, sys, threading
from dpfedge.pipeline.parent import Zygote
kept = os.open("/dev/zero", os.O_RDONLY)
{before}
one = Zygote(own=True)
pid = one.process.pid
{after}
"""
CLOSED = "one.control.close(); print(one.process.wait(60), one.process.wait(60))"


def own(before: str = "pass", after: str = CLOSED) -> str:
    """What a new process prints whose zygote is its own."""
    code = OWN.format(before=before, after=after)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.strip()


def test_zygote__of_an_own_process_is_forked_off_it() -> None:
    """It is the same program, and ends when its socket is closed."""
    same = "print(open(f'/proc/{pid}/cmdline').read() == open('/proc/self/cmdline').read());"

    assert own(after=same + CLOSED) == "True\n0 0"


def test_zygote__of_an_own_process_with_threads_is_started_anew() -> None:
    """A fork would lose them, and whatever they hold."""
    thread = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    same = "print(open(f'/proc/{pid}/cmdline').read() == open('/proc/self/cmdline').read());"

    assert own(before=thread, after=same + CLOSED) == "False\n0 0"


def test_zygote__forked_holds_no_descriptor_of_its_parent() -> None:
    """A port that its parent closes is free; the terminal is the parent's."""
    wait = "import time\nwhile not os.readlink(f'/proc/{pid}/fd/0') == '/dev/null': time.sleep(0.01)\ntime.sleep(0.2)\n"
    held = "print('/dev/zero' in [os.readlink(f'/proc/{pid}/fd/{fd}') for fd in os.listdir(f'/proc/{pid}/fd')]);"

    assert own(after=wait + held + CLOSED) == "False\n0 0"


def test_zygote__forked_is_not_ended_by_ctrl_c() -> None:
    """Neither early nor late; and this process hears it again."""
    early = "os.kill(pid, signal.SIGINT)\n" + CLOSED
    mask = "\nprint(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"

    assert own(after=early + mask) == "0 0\nFalse"


def test_stop__kills_a_forked_one_that_does_not_listen() -> None:
    """After the grace it is gone; a second kill is nothing."""
    stopped = "os.kill(pid, signal.SIGSTOP); one.stop(0.05); one.process.kill(); print(one.process.returncode)"

    assert own(after=stopped) == "-9"


def test_zygote__forked_and_stopped_does_not_outlive_its_parent() -> None:
    """Nobody could end it by its socket, and stages live as long as it does."""
    after = """
import time
while open(f'/proc/{pid}/comm').read() != 'dpf-zygote\\n': time.sleep(0.01)
os.kill(pid, signal.SIGSTOP)
print(pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    code = OWN.format(before="pass", after=after)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    stat = Path(f"/proc/{int(done.stdout)}/stat")
    for _ in range(2000):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
                time.sleep(0.01)
                continue
        return
    os.kill(int(done.stdout), signal.SIGKILL)
    raise AssertionError("it is still there")
