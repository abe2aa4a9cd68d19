# SPDX-License-Identifier: Apache-2.0
"""The store at its worst: a full disk, a read-only store, odd paths, files that change under their readers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from dpfedge.package import PackageWriter

SMALL = """
import sys
from pathlib import Path
from dpfedge.cli import main
import dpfedge.binding
dpfedge.binding.bind_here = lambda package, board: None  # these packages have no target
sys.exit(main(sys.argv[1:]))
"""


def write(path: Path, version: str = "1", nbytes: int = 3 << 20) -> Path:
    """A package of 3 MiB."""
    with PackageWriter(path, name="voice", version=version) as writer:
        writer.add("weights", "weights", os.urandom(nbytes))
        writer.finish({})
    return path


def dpfedge(*arguments: str, before: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """A command; `before` is run by a shell in a mount namespace of its own, and the command after it."""
    command = [sys.executable, "-c", SMALL, *arguments]
    if before:
        command = ["unshare", "-rm", "sh", "-ec", f'{before}; exec "$@"', "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environ})


def _no_namespaces() -> str | None:
    if shutil.which("unshare") is None:
        return "there is no unshare"
    done = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    return f"mount namespaces are not allowed here: {done.stderr.strip()}" if done.returncode else None


NO_NAMESPACES = _no_namespaces()
namespaces = pytest.mark.skipif(NO_NAMESPACES is not None, reason=str(NO_NAMESPACES))


@namespaces
def test_full_disk__says_what_was_needed_and_what_is_there(tmp_path: Path) -> None:
    """Before a byte was copied; exit code 1."""
    package, store = write(tmp_path / "p.dpfbin"), tmp_path / "store"
    store.mkdir()
    needed = package.stat().st_size + (1 << 20)
    done = dpfedge(
        "install", str(package), "--allow-unsigned", "--store", str(store),
        before=f"mount -t tmpfs -o size=2m tmpfs '{store}'",
    )  # fmt: skip

    assert done.returncode == 1
    form = (
        rf"dpfedge: {store}/incoming: the store's disk has too little room; found \d+ bytes free; "
        rf"allowed {needed} bytes; free some space: `dpfedge gc` deletes what no slot refers to\n"
    )
    assert re.fullmatch(form, done.stderr), done.stderr


@namespaces
def test_read_only_store__is_read_and_refuses_changes(tmp_path: Path) -> None:
    """Word for word; `list` and `inspect` work, nothing is changed."""
    store = tmp_path / "store"
    assert dpfedge("install", str(write(tmp_path / "1")), "--allow-unsigned", "--store", str(store)).returncode == 0
    new, mount = write(tmp_path / "2", "2"), f"mount --bind '{store}' '{store}'; mount -o remount,bind,ro '{store}'"
    refusals = {
        done.stderr
        for done in (
            dpfedge("install", str(new), "--allow-unsigned", "--store", str(store), before=mount),
            dpfedge("rollback", "voice", "--store", str(store), before=mount),
            dpfedge("remove", "voice", "--store", str(store), before=mount),
            dpfedge("gc", "--store", str(store), before=mount),
        )
    }
    shown = dpfedge("inspect", "voice", before=mount, DPFEDGE_STORE=str(store))
    listed = dpfedge("list", "--store", str(store), before=mount)

    text = f"{store}: the store is read-only; mount it writable, or choose another store with DPFEDGE_STORE"
    assert refusals == {f"dpfedge: {text}\n"}
    assert shown.stdout.startswith("voice 1, format 1.0")
    assert listed.stdout.startswith("voice 1, ")


def test_store_of_another_user__refuses_changes(tmp_path: Path) -> None:
    """As the user who may only read it."""
    store, package = tmp_path / "store", write(tmp_path / "1")
    assert dpfedge("install", str(package), "--allow-unsigned", "--store", str(store)).returncode == 0
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from dpfedge.store import Store\n"
        "from dpfedge.errors import StoreError\n"
        "store = Store(Path(sys.argv[1]))\n"
        "if os.getuid() == 0: os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "else: store.places.lock.chmod(0o444)\n"
        "try: store.gc()\n"
        "except StoreError as error: print(error); print(os.geteuid())\n"
    )
    for folder in (tmp_path, *tmp_path.parents[:2]):
        if os.getuid() == 0:
            folder.chmod(folder.stat().st_mode | 0o055)
    done = subprocess.run([sys.executable, "-c", code, str(store)], capture_output=True, text=True, timeout=60)
    text, user = done.stdout.splitlines()

    assert text == (
        f"{store}: the store may not be changed; found user {user}; run this as the store's owner, or choose another "
        "store with DPFEDGE_STORE"
    )


def test_paths__with_spaces_and_unicode(tmp_path: Path) -> None:
    """Of the package, of the store, of the folder one stands in."""
    folder = tmp_path / "Ordner mit Leerzeichen, 日本語, ü\nand a line"
    folder.mkdir()
    package, store = write(folder / "päckage 1.dpfbin"), folder / "a store"
    for arguments in (
        ("verify", str(package), "--allow-unsigned"), ("install", str(package), "--allow-unsigned"), ("list", "--json"),
        ("inspect", "voice"), ("verify", "voice", "--allow-unsigned"), ("remove", "voice"), ("gc",),
    ):  # fmt: skip
        done = dpfedge(*arguments, DPFEDGE_STORE=str(store))
        assert done.returncode == 0, (arguments, done.stderr)

    assert sorted(path.name for path in store.rglob("*") if path.is_file()) == ["lock"]


def test_outside_file__replaced_by_rename_under_a_server(
    voice_package: Path, tmp_path: Path, start_server: Any, until: Callable[..., None]
) -> None:
    """The server keeps the file it opened, for stages that come back, too."""
    path = tmp_path / "voice ü.dpfbin"
    shutil.copyfile(voice_package, path)
    server = start_server(path, tmp_path, "--board", "host")
    server.wait_ready()
    write(tmp_path / "other")
    os.replace(tmp_path / "other", path)
    pid = server.status()["stages"]["llm"]["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: server.status()["stages"]["llm"]["pid"] not in (0, pid) and server.status()["ready"])
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    answer = httpx.post(f"{server.url}/v1/chat/completions", json={"model": "voice", "messages": messages}, timeout=60)

    assert answer.status_code == 200
    assert "Paris" in answer.text
    assert server.stop() == 0


def test_outside_file__cut_in_place_ends_its_reader(tmp_path: Path) -> None:
    """The documented hazard (STORE.md): SIGBUS, in the process that reads behind the new end, and in no other."""
    path = write(tmp_path / "p.dpfbin")
    code = (
        "import os, sys\n"
        "from dpfedge.package import open_package\n"
        "package = open_package(sys.argv[1])\n"
        "os.truncate(sys.argv[1], 70000)\n"
        "print(len(bytes(package.section('weights')[:4000])), flush=True)\n"
        "bytes(package.section('weights'))\n"
        "print('not reached')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.returncode) == ("4000\n", -signal.SIGBUS)


def test_many__installs_rollbacks_and_collections_at_once(tmp_path: Path) -> None:
    """Each waits for the others; none fails, none sees half of another's, and nothing is left over."""
    store = tmp_path / "store"
    packages = [write(tmp_path / str(version), str(version), 200_000) for version in (1, 2)]
    assert dpfedge("install", str(packages[0]), "--allow-unsigned", "--store", str(store)).returncode == 0
    assert dpfedge("install", str(packages[1]), "--allow-unsigned", "--store", str(store)).returncode == 0
    command = [
        sys.executable,
        "-c",
        SMALL.replace("sys.exit(main(sys.argv[1:]))", MANY),
        str(store),
        *map(str, packages),
    ]
    runs = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE, text=True) for number in range(4)]
    for one in runs:
        _, told = one.communicate(timeout=200)
        assert one.returncode == 0, told
    listed = dpfedge("list", "--store", str(store)).stdout.splitlines()

    assert sorted(line.split(",")[0].split()[-1] for line in listed) == ["1", "2"]
    assert len(list((store / "files").iterdir())) == 4
    assert list((store / "incoming").iterdir()) == []


MANY = """
store, first, second, number = sys.argv[1:]
ways = (["install", first, "--allow-unsigned"], ["install", second, "--allow-unsigned"], ["rollback", "voice"], ["gc"])
from dpfedge.store import Store, locate
for turn in range(12):
    code = main([*ways[(turn + int(number)) % 4], "--store", store])
    if code:
        sys.exit(code)
    locate("voice", Path(store)).open("full").close()
"""


def test_busy_store__names_who_holds_it(tmp_path: Path) -> None:
    """Word for word, after the time that was asked for; exit code 1."""
    store = tmp_path / "store"
    assert dpfedge("gc", "--store", str(store)).returncode == 0
    code = (
        "import sys, pathlib\n"
        "from dpfedge.store import Store\n"
        "with Store(pathlib.Path(sys.argv[1])).changing('dpfedge install x.dpfbin'):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        done = dpfedge(
            "install", str(write(tmp_path / "1")), "--allow-unsigned", "--store", str(store), "--wait", "0.3"
        )
        holder.kill()

    assert done.returncode == 1
    assert done.stderr == (
        f"dpfedge: {store}: another process is changing the store, waited 0.3 s; "
        f"found pid {holder.pid} (dpfedge install x.dpfbin); wait for it, or end it, and try again\n"
    )
