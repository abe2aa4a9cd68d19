# SPDX-License-Identifier: Apache-2.0
"""Power loss and failing disks: a change of the store interrupted at each system call, and each call made to fail."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_trace import can_inject, can_trace
from made_variant import variant

from dpfedge.store import Store, locate

SCRIPT = Path(__file__).parent / "made" / "made_store.py"
NO_TRACE, NO_INJECTION = can_trace(), can_inject()

FREE = "free some space: `dpfedge gc` deletes what no slot refers to"
TOLD = (
    rf"StoreError: STORE[^:]*: the store's disk is full; found N bytes free; allowed N bytes; {FREE}",
    r"StoreError: STORE[^:]*: the store is read-only; mount it writable, or choose another store with DPFEDGE_STORE",
    r"StoreError: STORE[^:]*: cannot change the store: Input/output error; look at the kernel's log for the disk",
)
LASTING = (
    r"StoreError: STORE[^:]*: the change was made, but the disk does not say that it is durable, "
    r"nor lets it be undone; "
    r"found (No space left on device|Input/output error|Read-only file system); look at the kernel's log for the disk"
)


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: thousands of fsyncs of a real disk take minutes, and prove no more."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="dpfedge test ", dir=memory) as folder:
        yield Path(folder)


def play(what: str, folder: Path, scene: str) -> Any:
    """What `made_store.py` found out."""
    command = [sys.executable, str(SCRIPT), what, str(folder), scene]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[scene]


@pytest.mark.skipif(NO_TRACE is not None, reason=str(NO_TRACE))
@pytest.mark.parametrize(
    ("scene", "least"), [("first", 150), ("second", 150), ("third", 150), ("rollback", 40), ("remove", 40), ("gc", 40)]
)
def test_kill__at_every_system_call(quick: Path, scene: str, least: int) -> None:
    """Old state or new, never another; the next install succeeds, and `gc` leaves no leftover."""
    found = play("kill", quick, scene)

    assert found["bad"] == []
    assert found["points"] >= least


@pytest.mark.skipif(NO_INJECTION is not None, reason=str(NO_INJECTION))
@pytest.mark.parametrize("scene", ["first", "second", "rollback", "remove"])
def test_fail__every_call_that_writes(quick: Path, scene: str) -> None:
    """ENOSPC, EIO and EROFS each leave the old state, and say so word for word; only the lock's text may be missing."""
    found = play("fail", quick, scene)

    assert found["bad"] == []
    assert [text for text in found["told"] if not any(re.fullmatch(form, text) for form in TOLD)] == []
    assert set(found["passed"]) == {"ftruncate lock", "pwrite64 lock"}


@pytest.mark.skipif(NO_INJECTION is not None, reason=str(NO_INJECTION))
@pytest.mark.parametrize("scene", ["second", "rollback"])
def test_fail__and_every_call_after_it(quick: Path, scene: str) -> None:
    """A disk that goes away for good: a change that could be neither made durable nor undone is told to be made."""
    found = play("dying", quick, scene)

    assert found["bad"] == []
    assert [text for text in found["told"] if not any(re.fullmatch(form, text) for form in (*TOLD, LASTING))] == []


@pytest.mark.skipif(NO_TRACE is not None, reason=str(NO_TRACE))
def test_order__data_before_names_before_slots(tmp_path: Path) -> None:
    """The package is durable before it is named, its name before its record, and both before the slots switch."""
    calls = play("order", tmp_path, "first")["calls"]
    steps = [
        "mkdir files", "fsync .", "copy_file_range incoming/ID0.dpfbin", "fsync incoming/ID0.dpfbin",
        "rename incoming/ID0.dpfbin files/ID0.dpfbin", "fsync files", "write files/.ID0.json.new",
        "fsync files/.ID0.json.new", "rename files/.ID0.json.new files/ID0.json", "fsync files",
        "write names/.voice.json.new", "fsync names/.voice.json.new", "rename names/.voice.json.new names/voice.json",
        "fsync names",
    ]  # fmt: skip
    rest = iter(calls)
    missing = [step for step in steps if not any(call == step for call in rest)]  # a subsequence, in this order
    written = {call.split(" ", 1)[1] for call in calls if call.startswith(("write", "copy", "sendfile", "pwrite"))}

    assert missing == []
    assert written == {"lock", "incoming/ID0.dpfbin", "files/.ID0.json.new", "names/.voice.json.new"}
    assert not [call for call in calls if call.startswith(("write", "pwrite", "copy")) and " files/ID0.dpfbin" in call]


def test_kill__the_real_command_at_any_moment(voice_package: Path, demo_key: Path, tmp_path: Path) -> None:
    """With the demo package, its signature, its board and its golden run: eight moments, spread over the command."""
    new = variant(voice_package, tmp_path / "new.dpfbin", "9.9.9", demo_key)
    environ = {**os.environ, "DPFEDGE_STORE": str(tmp_path / "store")}

    def install(package: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dpfedge", "install", str(package), "--board", "host"]
        return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)

    assert install(voice_package).wait(200) == 0
    store = Store(tmp_path / "store")
    old = store.active("voice").version
    started = time.monotonic()
    assert install(new).wait(200) == 0
    took = time.monotonic() - started
    for moment in range(8):
        store.remove("voice")
        assert install(voice_package).wait(200) == 0
        running = install(new)
        time.sleep(took * (moment + 0.5) / 8)
        running.kill()
        running.wait()
        version = store.active("voice").version
        locate("voice", store.root).open("full").close()
        store.gc()
        assert version in (old, "9.9.9")
        assert list(store.places.incoming.iterdir()) == []


class Disk:
    """What a disk may hold after a power loss: names as last made durable, with any of the changes made since."""

    def __init__(self) -> None:
        self.cached: dict[str, int] = {}  # path → file
        self.durable: dict[str, int] = {}
        self.whole: set[int] = set()  # files whose content is on the disk
        self._files = 0

    def apply(self, call: str) -> None:
        """One call of the trace."""
        name, *paths = call.split(" ")
        if name in ("openat", "mkdir") and paths[0] not in self.cached:
            self._files += 1
            self.cached[paths[0]] = self._files
        elif name in ("write", "pwrite64", "copy_file_range", "sendfile", "ftruncate"):
            self.whole.discard(self.cached[paths[0]])
        elif name == "rename":
            self.cached[paths[1]] = self.cached.pop(paths[0])
        elif name == "unlink":
            self.cached.pop(paths[0], None)
        elif name == "fsync":
            if paths[0] in self.cached:
                self.whole.add(self.cached[paths[0]])
            for path in {path for path in (*self.cached, *self.durable) if str(Path(path).parent) == paths[0]}:
                self._settle(path, self.durable)

    def _settle(self, path: str, names: dict[str, int]) -> None:
        if path in self.cached:
            names[path] = self.cached[path]
        else:
            names.pop(path, None)

    def after_power_loss(self) -> Iterator[dict[str, int]]:
        """Every set of names that may be found: each change since the folder's last fsync is there or is not."""
        paths = {*self.cached, *self.durable}
        pending = [path for path in sorted(paths) if self.cached.get(path) != self.durable.get(path)]
        for count in range(len(pending) + 1):
            for some in itertools.combinations(pending, count):
                names = dict(self.durable)
                for path in some:
                    self._settle(path, names)
                yield names


@pytest.mark.skipif(NO_TRACE is not None, reason=str(NO_TRACE))
def test_power_loss__in_the_worst_order(tmp_path: Path) -> None:
    """Whatever of the unsynced changes reaches the disk: slots that are found are whole, as is all they refer to."""
    disk, states, slots = Disk(), 0, 0
    for call in play("order", tmp_path, "first")["calls"]:
        disk.apply(call)
        for names in disk.after_power_loss():
            states += 1
            if "names/voice.json" in names:
                slots += 1
                for path in ("names", "files", "names/voice.json", "files/ID0.dpfbin", "files/ID0.json"):
                    assert path in names, (call, path)
                    assert path in ("names", "files") or names[path] in disk.whole, (call, path)

    assert states > 50
    assert slots > 3
