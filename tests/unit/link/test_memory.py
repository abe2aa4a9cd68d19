# SPDX-License-Identifier: Apache-2.0
"""Memory for an arena: the least of what is free, and the file that stands in where memfds are refused."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import os
import resource
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge import _core
from dpfedge.errors import LinkError
from dpfedge.link import Arena, LinkSpec
from dpfedge.link.memory import available

LINK = LinkSpec("left.right", "left", "right", 2, 64)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], Path]:
    """`refused(errno)`: memfds fail so from now on; the run directory."""
    create = _core.create
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))

    def refuse(number: int) -> Path:
        def instead(*plan: object) -> int:
            if plan[5] == -1:
                raise OSError(number, os.strerror(number))
            return create(*plan)  # type: ignore[arg-type]

        monkeypatch.setattr(_core, "create", instead)
        return tmp_path / "run" / "dpfedge"

    return refuse


def test_available__takes_the_least(tmp_path: Path) -> None:
    """The machine's free memory, the cgroup's or the address space's, or nothing known."""
    proc, group = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (group / "g").mkdir(parents=True)
    assert available(proc, group) is None

    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 8 kB\n")
    assert available(proc, group) == 8192
    (proc / "self/cgroup").write_text("0::/g\n")
    (group / "g/memory.max").write_text("5000\n")
    (group / "g/memory.current").write_text("4000\n")
    assert available(proc, group) == 1000
    (group / "g/memory.max").write_text("max\n")
    assert available(proc, group) == 8192


def test_available__counts_the_address_space(tmp_path: Path) -> None:
    """Where it is limited."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/statm").write_text("100 7 6 5 0 4 0\n")
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, limits[1]))
    try:
        assert available(tmp_path, tmp_path) == (1 << 40) - 100 * resource.getpagesize()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.ENOSYS])
def test_reserve__takes_a_file_and_says_so(
    refused: Callable[[int], Path], capfd: pytest.CaptureFixture[str], number: int
) -> None:
    """Private, without a name, every page there; another process would attach it as any other."""
    folder = refused(number)
    with Arena.create([LINK], requests=1) as arena, Arena.attach(arena.fd) as other:
        info = os.fstat(arena.fd)
        assert (info.st_nlink, stat.S_IMODE(info.st_mode)) == (0, 0o600)
        assert info.st_blocks * 512 >= info.st_size == arena.nbytes
        assert (arena.sealed, other.sealed) == (False, False)
        assert (os.listdir(folder), stat.S_IMODE(folder.stat().st_mode)) == ([], 0o700)
        producer, consumer = arena.producer("left.right", 1), other.consumer("left.right", 2)
        producer.send(producer.loan(8), kind=1, request=7)
        lease = consumer.receive()
        assert lease is not None
        assert lease.request == 7

    text = capfd.readouterr().err
    assert text.startswith(f"dpfedge: warning: memfd_create is refused ({os.strerror(number)}): ")
    assert str(folder) in text


def test_reserve__a_folder_open_to_others(refused: Callable[[int], Path]) -> None:
    """Somebody else could put files there."""
    folder = refused(errno.EPERM)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(LinkError, match=r"is open to others; found owner \d+, mode 777; .*XDG_RUNTIME_DIR"):
        Arena.create([LINK], requests=1)


def test_reserve__no_folder_at_all(refused: Callable[[int], Path]) -> None:
    """Both refusals are told."""
    folder = refused(errno.ENOSYS)
    folder.parent.write_text("a file")
    with pytest.raises(
        LinkError, match=r"memfd_create is refused \(Function not implemented\), and the run directory cannot"
    ):
        Arena.create([LINK], requests=1)


def test_reserve__a_link_is_not_followed(refused: Callable[[int], Path], tmp_path: Path) -> None:
    """In /tmp anybody may have made one."""
    folder = refused(errno.EPERM)
    folder.parent.mkdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(LinkError, match="the run directory cannot be used"):
        Arena.create([LINK], requests=1)


def test_reserve__too_large_a_file(refused: Callable[[int], Path]) -> None:
    """The error says how much is free where the file would be, and nothing is left."""
    folder, before = refused(errno.EPERM), len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(
            LinkError, match=rf"memory in {folder} cannot be reserved: File too large; found \d+ bytes free"
        ):
            Arena.create([LINK], requests=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(folder) == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("change", ["name", "mode"])
def test_attach__of_a_file_that_is_not_private(refused: Callable[[int], Path], tmp_path: Path, change: str) -> None:
    """A name, or a mode that lets others open it."""
    refused(errno.EPERM)
    with Arena.create([LINK], requests=1) as arena:
        path = tmp_path / "copy"
        path.touch(0o600)
        fd = os.open(path, os.O_RDWR)
        os.sendfile(fd, arena.fd, 0, arena.nbytes)
        if change == "mode":
            path.unlink()
            os.fchmod(fd, 0o660)
        with pytest.raises(LinkError, match="nor a private file without a name"):
            Arena.attach(fd)
        path.unlink(missing_ok=True)
        os.fchmod(fd, 0o600)
        with Arena.attach(fd) as other:
            assert not other.sealed
        os.close(fd)


def test_attach__without_address_space(tmp_path: Path) -> None:
    """What it takes and what there is."""
    with Arena.create([LinkSpec("left.right", "left", "right", 8, 1 << 20)], requests=1) as arena:
        limits = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), limits[1]))
        try:
            with pytest.raises(
                LinkError, match=r"mapped; found Cannot allocate memory, \d+ bytes free; allowed \d+ bytes"
            ):
                Arena.attach(arena.fd)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)


def test_truncated__by_a_peer(refused: Callable[[int], Path]) -> None:
    """A file cannot be sealed: who touches what is gone ends with SIGBUS, and touches nothing else."""
    refused(errno.EPERM)
    with Arena.create([LINK], requests=1) as arena:
        pid = os.fork()
        if pid == 0:
            faulthandler.disable()
            os.ftruncate(arena.fd, 0)
            arena.producer("left.right", 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGBUS


def test_create__without_descriptors() -> None:
    """The limit on open files is named; nothing is left open."""
    before = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    filler = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    with contextlib.suppress(OSError):
        while True:
            filler.append(os.dup(0))
    try:
        with pytest.raises(
            LinkError, match=r"cannot be made; found Too many open files; raise the limit on open files"
        ):
            Arena.create([LINK], requests=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in filler:
            os.close(fd)
    assert len(os.listdir("/proc/self/fd")) == before
