# SPDX-License-Identifier: Apache-2.0
"""What a machine allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.errors import Unavailable
from dpfedge.routing.kernel.support import cgroup_of, cgroup_root, check_machine, object_bytes


@pytest.mark.parametrize("release", ["5.15.0-1012-tegra", "6.8.0", "10.1"])
def test_machine__from_linux_5_15_on(release: str) -> None:
    """As it calls itself."""
    check_machine(release, "little")


@pytest.mark.parametrize("release", ["5.14.21", "4.9.337-tegra", "strange"])
def test_machine__too_old_says_so(release: str) -> None:
    """And what it found."""
    with pytest.raises(Unavailable, match=rf"too old.*found {release}.*5\.15 or newer"):
        check_machine(release, "little")


def test_machine__of_the_other_byte_order() -> None:
    """The objects are of one."""
    with pytest.raises(Unavailable, match="big-endian"):
        check_machine("6.1.0", "big")


def test_object__not_built(tmp_path: Path) -> None:
    """It names the command that builds it."""
    with pytest.raises(Unavailable, match="run `make bpf`"):
        object_bytes("route", tmp_path)
    (tmp_path / "route.bpf.o").write_bytes(b"x")
    assert object_bytes("route", tmp_path) == b"x"


def test_cgroup__is_found_among_the_mounts(tmp_path: Path) -> None:
    """Alone, beside v1, or not at all; a folder that is no cgroup is refused."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "31 29 0:27 / /sys/fs/cgroup/uni\\040fied rw,nosuid shared:3 - cgroup2 cgroup2 rw\n"
    )
    assert cgroup_root(mounts) == Path("/sys/fs/cgroup/uni fied")
    mounts.write_text("30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    with pytest.raises(Unavailable, match="no cgroup v2 is mounted"):
        cgroup_root(mounts)
    (tmp_path / "cgroup.procs").touch()  # as in v1
    with pytest.raises(Unavailable, match="no cgroup v2"):
        cgroup_of(tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    assert cgroup_of(tmp_path) == tmp_path


def test_cgroup__where_nothing_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No /proc, a folder that is shut, a mount whose name is no UTF-8: a reason, never another error."""
    with pytest.raises(Unavailable, match="what is mounted cannot be read; found No such file"):
        cgroup_root(tmp_path / "mountinfo")
    (tmp_path / "mountinfo").write_bytes(b"31 29 0:27 / /sys/\xff rw - ext4 x rw\n32 29 0:27 / /c rw - cgroup2 c rw\n")
    assert cgroup_root(tmp_path / "mountinfo") == Path("/c")
    monkeypatch.setattr("os.stat", _shut)
    with pytest.raises(Unavailable, match="no cgroup v2"):
        cgroup_of(tmp_path)


def _shut(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")
