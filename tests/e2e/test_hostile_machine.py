# SPDX-License-Identifier: Apache-2.0
"""A real pipeline on machines that lack something: memfds, room, descriptors, processes, a clock that is right."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_machine import SKIP
from made_tiny import Holder, lives, opened, write_tiny

Until = Callable[..., None]
Hold = Callable[..., Holder]

NO_MEMFD = "import errno, made_machine; made_machine.refuse(errno.EPERM, 'memfd_create')"
NO_FORK = "import errno, made_machine; made_machine.refuse(errno.EAGAIN, 'clone', 'clone3', 'fork', 'vfork')"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A pipeline file."""
    return write_tiny(tmp_path)


@pytest.fixture
def hold(tiny: Path) -> Iterator[Hold]:
    """Starts a process that holds the pipeline under load; in the end none of them has found a wrong number."""
    made: list[Holder] = []

    def start(before: str = "", **environ: str) -> Holder:
        made.append(Holder(tiny, 2, before=before, **environ))
        return made[-1]

    yield start
    for one in made:
        assert one.close() == 0, one.log.read_text()


def serves(holder: Holder, until: Until) -> None:
    """Requests are answered, before and after a stage was killed."""
    until(lambda: holder.status()["whole"] > 5)
    os.kill(holder.status()["stages"]["second"][0], signal.SIGKILL)
    until(lambda: all_ready(holder))
    whole = holder.status()["whole"]
    until(lambda: holder.status()["whole"] > whole + 5)


def all_ready(holder: Holder) -> bool:
    """Whether every stage serves."""
    return all(state == "ready" for _, state, _ in holder.status()["stages"].values())


def may(holder: Holder) -> Holder:
    """Skip the test where a process may not make itself a small file system."""
    if holder.process.poll() == SKIP:
        pytest.skip("no mount namespace here")
    return holder


def test_memfd__refused(hold: Hold, until: Until, tmp_path: Path) -> None:
    """Links work in a file of the run directory, which is empty all the time; one line says so."""
    holder = hold(NO_MEMFD, XDG_RUNTIME_DIR=str(tmp_path / "run"))
    serves(holder, until)

    assert holder.status()["sealed"] is False
    assert os.listdir(tmp_path / "run" / "dpfedge") == []
    said = [line for line in holder.log.read_text().splitlines() if "memfd" in line]
    assert len(said) == 1
    assert said[0].startswith("dpfedge: warning: memfd_create is refused (Operation not permitted)")


def test_run_directory__without_room(tiny: Path, tmp_path: Path) -> None:
    """What is needed and what is free, before anything is written; no page is missing later."""
    folder = tmp_path / "run" / "dpfedge"
    before = f"import made_machine; made_machine.small_folder({str(folder)!r}, 1 << 16); {NO_MEMFD}"
    found = opened(tiny, before, XDG_RUNTIME_DIR=str(tmp_path / "run"))
    if found.returncode == SKIP:
        pytest.skip("no mount namespace here")

    assert "memory in" in found.stdout
    text = r"LinkError: arena: .*: No space left on device; found (\d+) bytes free; allowed at least (\d+) bytes"
    free, needed = re.match(text, found.stdout).groups()  # type: ignore[union-attr]
    assert int(free) <= 1 << 16 < int(needed)


@pytest.mark.parametrize("full", [False, True])
def test_shm__small_or_full(hold: Hold, until: Until, full: bool) -> None:
    """Nothing of a pipeline is there."""
    holder = hold(f"import made_machine; made_machine.small_folder('/dev/shm', 1 << 20, full={full})")
    until(lambda: may(holder).log.exists())
    serves(holder, until)


@pytest.mark.parametrize("limit", [4, 8, 12, 13, 14])
def test_descriptors__too_few_to_start(tiny: Path, limit: int) -> None:
    """The error names the limit or the stage that could not be started; nothing is left behind."""
    before = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))"
    found = opened(tiny, before)

    assert re.match(r"StageError: .*Too many open files", found.stdout), (found.stdout, found.stderr)
    assert "Traceback" not in found.stderr
    assert not any(lives(int(pid)) for pid in re.findall(r"pid (\d+)", found.stderr))


@pytest.mark.parametrize(
    ("where", "what", "least"),
    [
        ("supervisor", resource.RLIMIT_NOFILE, 3),
        ("zygote", resource.RLIMIT_NOFILE, 3),
        ("zygote", resource.RLIMIT_AS, 1 << 20),
    ],
)
def test_restart__with_too_little(hold: Hold, until: Until, where: str, what: int, least: int) -> None:
    """Descriptors or memory: the stage is tried again until there is enough; the others go on."""
    holder = hold(TINY_BACK_OFF_S="0.05")
    until(lambda: holder.status()["whole"] > 5)
    status = holder.status()
    pid = holder.process.pid if where == "supervisor" else status["zygote"]
    limits = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (least, limits[1]))  # what it has already stays
    os.kill(status["stages"]["second"][0], signal.SIGKILL)
    until(lambda: holder.status()["stages"]["second"][2] > 3)
    until(lambda: re.search("Too many open files|Cannot allocate", str(holder.status()["failures"].get("second"))))
    assert holder.status()["stages"]["first"][1:] == ["ready", 0]
    assert holder.status()["zygote"] == status["zygote"]

    resource.prlimit(pid, what, limits)
    until(lambda: all_ready(holder))
    serves(holder, until)


def test_address_space__too_small(tiny: Path) -> None:
    """The error says what is needed and what is free."""
    before = (
        "import dpfedge.runtime, dpfedge.pipeline.engine, dpfedge.runtime.loop, resource; "
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize(); "
        "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), -1))"
    )
    found = opened(tiny, before, TINY_NUMBERS=str(64 << 20))

    text = r"LinkError: arena: not enough memory; found \d+ bytes free; allowed at least \d+ bytes"
    assert re.match(text, found.stdout), (found.stdout, found.stderr)


def test_address_space__too_small_for_stages(tiny: Path) -> None:
    """What the caller could map a stage cannot: the error names it, and the bytes."""
    few = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 20, -1))"
    found = opened(tiny, TINY_STAGE=few)

    text = (
        r"StageError: stage \w+: memory cannot be mapped; found Cannot allocate memory, 0 bytes free; allowed \d+ bytes"
    )
    assert re.match(text, found.stdout), (found.stdout, found.stderr)


def test_locked_memory__none(hold: Hold, until: Until) -> None:
    """No page is locked."""
    serves(hold("import resource; resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))"), until)


@pytest.mark.parametrize("where", ["caller", "zygote"])
def test_processes__none_left(tiny: Path, where: str) -> None:
    """As with RLIMIT_NPROC or pids.max of a cgroup: fork says EAGAIN."""
    # where OpenBLAS gets no thread, it raises SIGINT instead of an error
    calm = {"OPENBLAS_NUM_THREADS": "1"}
    found = opened(tiny, NO_FORK, **calm) if where == "caller" else opened(tiny, TINY_ZYGOTE=NO_FORK)

    assert re.match(r"StageError: .*(Resource temporarily unavailable|start new thread)", found.stdout), found
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("most", [1, 4, 6, 7])
def test_processes__few(tiny: Path, most: int) -> None:
    """Whoever is refused first says so, and what was started by then ends: the caller, too."""
    found = opened(tiny, f"import made_machine; made_machine.few_processes({most})", OPENBLAS_NUM_THREADS="1")
    if found.returncode == SKIP:
        pytest.skip("no capabilities here")

    assert re.match(r"StageError: .*(Resource temporarily unavailable|start new thread)", found.stdout), found
    assert "Traceback" not in found.stderr


# every clock that tells the time of day jumps: a day ahead, a day back, 1970
JUMPS = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long now(struct timespec *out) {
    struct timespec steady;
    static const long shift[] = {0, 86400, -86400, 0};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &steady);
    syscall(SYS_clock_gettime, CLOCK_REALTIME, out);
    int step = (int)(steady.tv_nsec / 7000000 % 4);
    out->tv_sec = step == 3 ? 1 : out->tv_sec + shift[step];
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) return (int)now(out);
    return (int)syscall(SYS_clock_gettime, clock, out);
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec at;
    (void)zone;
    now(&at);
    out->tv_sec = at.tv_sec;
    out->tv_usec = at.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec at;
    now(&at);
    if (out) *out = at.tv_sec;
    return at.tv_sec;
}
"""


def test_clock__jumps(hold: Hold, until: Until, tmp_path: Path) -> None:
    """By a day and back to 1970, every few milliseconds, in every process: no wait ends early or late."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (tmp_path / "jumps.c").write_text(JUMPS)
    library = tmp_path / "jumps.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "jumps.c"], check=True)
    check = (
        "import time; seen = {time.time() // 86400 for _ in range(400) if not time.sleep(0.001)}; assert len(seen) > 3"
    )
    holder = hold(check, LD_PRELOAD=str(library))
    serves(holder, until)

    status = holder.status()
    assert status["failed"] <= 4  # those of the stage that `serves` kills
    assert sum(restarts for _, _, restarts in status["stages"].values()) == 1
