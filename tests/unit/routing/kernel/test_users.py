# SPDX-License-Identifier: Apache-2.0
"""Who uses which device: by the kernel where it may, by /proc everywhere. Devices that every machine has stand in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpfedge.errors import Unavailable
from dpfedge.routing.kernel.users import DEVICES, DeviceUsers, Use

FULL = Path("/dev/full")


@pytest.fixture(params=[True, False], ids=["kernel", "proc"])
def users(request: pytest.FixtureRequest) -> Iterator[DeviceUsers]:
    """Watches /dev/full, which nobody has open by chance."""
    with DeviceUsers(devices=("full",), kernel=request.param) as one:
        if request.param and one.why:
            pytest.skip(f"the kernel does not tell: {one.why}")
        yield one


def _mine(users: DeviceUsers) -> list[Use]:
    return [one for one in users.look() if one.pid == os.getpid()]


def test_look__who_has_a_device_open(users: DeviceUsers) -> None:
    """As long as it is open; opened twice it is one use."""
    assert _mine(users) == []
    with FULL.open("rb"), FULL.open("rb"):
        [use] = _mine(users)
        assert (use.device, use.open) == ("/dev/full", True)
        assert use.name
        assert use.opens == (None if users.why else 2)
    assert [one for one in _mine(users) if one.open] == []


def test_look__who_opened_it_and_closed_it(users: DeviceUsers) -> None:
    """The kernel tells of it once; /proc cannot."""
    users.look()
    with FULL.open("rb"):
        pass
    assert [(one.open, one.opens) for one in _mine(users)] == ([] if users.why else [(False, 1)])
    assert _mine(users) == []


def test_look__a_process_that_was_there_before(users: DeviceUsers) -> None:
    """And one that inherits it; both are gone when they end."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    with FULL.open("rb") as file:
        command = [sys.executable, "-c", code]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[file.fileno()], text=True
        )
    assert child.stdout is not None
    child.stdout.readline()
    assert child.pid in {one.pid for one in users.look() if one.open}
    child.communicate()
    assert child.pid not in {one.pid for one in users.look()}


def test_look__by_a_made_proc(tmp_path: Path) -> None:
    """Names and descriptors that cannot be read are counted, a process that ends meanwhile is not there."""
    for pid, target in (("1", "/dev/full"), ("2", "/dev/null"), ("3", "/nowhere")):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "fd" / "0").symlink_to(target)
        (tmp_path / pid / "comm").write_text(f"name {pid}\n")
    (tmp_path / "4").mkdir()
    (tmp_path / "self").mkdir()
    with DeviceUsers(devices=("full",), proc=tmp_path, kernel=False) as users:
        assert users.look() == [Use("/dev/full", 1, "name 1")]
        assert users.figures() == {
            "by": "/proc", "why": "not asked to", "unreadable": 0,
            "uses": [{"device": "/dev/full", "pid": 1, "name": "name 1", "open": True, "opens": None}],
        }  # fmt: skip


def test_devices__without_privilege_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """And looks through /proc."""

    def refuse() -> None:
        raise Unavailable("the kernel is too old to route", found="4.9")

    monkeypatch.setattr("dpfedge.routing.kernel.users.check_machine", refuse)
    with DeviceUsers(devices=("full",)) as users, FULL.open("rb"):
        figures = users.figures()
        assert (figures["by"], figures["why"]) == ("/proc", "the kernel is too old to route; found 4.9")
        assert os.getpid() in {one["pid"] for one in figures["uses"]}


def test_devices__where_the_cgroup_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounted, and something else over it, as in a container without /sys: /proc tells."""
    monkeypatch.setattr("dpfedge.routing.kernel.support.cgroup_root", lambda: tmp_path / "sys/fs/cgroup")
    with DeviceUsers(devices=("full",)) as users, FULL.open("rb"):
        assert "no cgroup v2 is there" in users.why
        assert os.getpid() in {one.pid for one in users.look()}


def test_devices__are_those_of_accelerators(tmp_path: Path) -> None:
    """Files that are no devices, and folders, are passed over."""
    (tmp_path / "dri").mkdir()
    (tmp_path / "nvidia0").write_text("")
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "mali0").symlink_to(FULL)
    (tmp_path / "kfd").symlink_to("/nowhere")
    with DeviceUsers(dev=tmp_path, kernel=False) as users, FULL.open("rb"):
        assert {one.device for one in users.look()} == {str(tmp_path / "mali0")}
    assert DEVICES == ("nvidia*", "mali0", "dri/*", "kfd")
