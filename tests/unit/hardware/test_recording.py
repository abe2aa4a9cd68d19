# SPDX-License-Identifier: Apache-2.0
"""Recordings of machines: what is in them, what is not, and that they answer as the machine does."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import UsageError
from dpfedge.hardware import recording
from dpfedge.hardware.probe import probe
from dpfedge.hardware.recording import RULES, record, write_folder, write_tar

Record = Callable[[str], Path]
MACHINES = Path(__file__).parents[2] / "fixtures/machines"
NAMES = sorted(path.name for path in MACHINES.iterdir() if path.is_dir())


def facts(root: Path) -> dict[str, Any]:
    """The machine without what changes from moment to moment, and without where it was read."""
    data = asdict(probe(root))
    del data["sysroot"], data["memory"]["available"]
    return data


def test_record__this_machine(tmp_path: Path) -> None:
    """The recording of this machine is this machine."""
    write_folder(record(), tmp_path / "here")

    assert facts(tmp_path / "here") == facts(Path("/"))


@pytest.mark.parametrize("name", NAMES)
def test_record__of_a_recording(tmp_path: Path, name: str) -> None:
    """The committed machines have the form that recording gives: nothing is lost or added."""
    write_folder(record(MACHINES / name), tmp_path / "again")

    written = {str(path.relative_to(tmp_path / "again")) for path in (tmp_path / "again").rglob("*") if path.is_file()}
    kept = {str(path.relative_to(MACHINES / name)) for path in (MACHINES / name).rglob("*") if path.is_file()}
    assert written == kept - {"README.md"}
    assert facts(tmp_path / "again") == facts(MACHINES / name)


@pytest.mark.parametrize("machine", ["h100", "x86", "foreign", "no-sys", "empty", "orin"])
def test_record__of_odd_machines(tmp_path: Path, record: Record, machine: str) -> None:
    """Containers with limits, hidden folders, foreign texts: the recording gives the same answer."""
    root = record(machine)
    write_folder(recording.record(root), tmp_path / "again")

    assert facts(tmp_path / "again") == facts(root)


SECRETS = {
    "proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd05\n\nSerial\t\t: 0123SECRET\n",
    "proc/meminfo": "MemTotal: 1 kB\nSwapTotal: 1 SECRET\n",
    "proc/self/status": "Name:\tSECRET\nUid:\t1000\nCpus_allowed_list:\t0\n",
    "proc/self/cgroup": "0::/user.slice/user-SECRET.slice/session-3.scope\n4:memory:/docker/SECRET\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu\n",
    "sys/fs/cgroup/user.slice/user-SECRET.slice/cpu.max": "50000 100000\n",
    "sys/fs/cgroup/memory/docker/SECRET/memory.limit_in_bytes": "1024\n",
    "proc/device-tree/compatible": "nvidia,tegra234\0",
    "proc/device-tree/serial-number": "SECRET\0",
    "sys/class/dmi/id/product_serial": "SECRET\n",
    "sys/class/dmi/id/product_name": "box\n",
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3\nSECRET\n",
    "etc/hostname": "SECRET\n",
    "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
    "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:01:00.0/device": "0x2330\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  (SECRET)\nGCC\n",
    "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: H100\nGPU UUID: GPU-SECRET\nDevice Minor: 0\n",
    "sys/bus/pci/devices/0000:02:00.0/class": "0x120000\n",
    "sys/bus/pci/devices/0000:02:00.0/vendor": "0x1002\n",
    "sys/bus/pci/devices/0000:02:00.0/device": "0x74a1\n",
    "sys/bus/pci/devices/0000:02:00.0/unique_id": "SECRET\n",
    "sys/bus/pci/devices/0000:02:00.0/xgmi_device_id": "0x5EC2E7SECRET\n",
    "sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties": "type 11\nSECRET 1\nnode_to 2\n",
    "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties": "heap_type 1\nSECRET 2\nsize_in_bytes 1024\n",
    "sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 90402\nlocation_id 512\nunique_id 1SECRET\n",
    "sys/class/drm/card0/device/uevent": "DRIVER=panthor\nMODALIAS=SECRET\n",
}


def test_record__holds_nothing_that_names_the_machine_or_its_users(tmp_path: Path) -> None:
    """Serial numbers, UUIDs, host, user and container names stay behind; the answer is the same without them."""
    for path, text in SECRETS.items():
        (tmp_path / "box" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "box" / path).write_text(text)

    files = record(tmp_path / "box")
    assert [path for path, data in files.items() if "SECRET" in path or b"SECRET" in data] == []
    assert files["proc/self/cgroup"] == b"0::/g1/g2/g3\n4:memory:/g1/g2\n"
    assert files["sys/fs/cgroup/g1/g2/cpu.max"] == b"50000 100000\n"
    write_folder(files, tmp_path / "again")
    assert facts(tmp_path / "again") == facts(tmp_path / "box")


def test_record__of_controllers_whose_names_are_joined_otherwise(tmp_path: Path) -> None:
    """Limits of groups found by a link of the mount, as on Linux 3.10, are in the recording, their names are not."""
    files = {
        "proc/self/cgroup": "4:cpuacct,cpu:/docker/SECRET\n",
        "sys/fs/cgroup/cpu,cpuacct/docker/SECRET/cpu.cfs_quota_us": "20000\n",
        "sys/fs/cgroup/cpu,cpuacct/docker/SECRET/cpu.cfs_period_us": "100000\n",
    }
    write_folder({path: text.encode() for path, text in files.items()}, tmp_path / "box")
    (tmp_path / "box/sys/fs/cgroup/cpu").symlink_to("cpu,cpuacct")

    found = record(tmp_path / "box")

    assert "SECRET" not in repr(found)
    write_folder(found, tmp_path / "again")
    assert facts(tmp_path / "again") == facts(tmp_path / "box")
    assert facts(tmp_path / "box")["limits"]["cpus"] == 0.2


def test_record__keeps_no_address_of_the_process(record: Record) -> None:
    """Of the auxiliary vector only features and the page size are kept."""
    root = record("orin")
    pairs = ((6, 4096), (16, 3), (25, 0x7FFD1234), (11, 1000), (26, 1), (0, 0))
    (root / "proc/self/auxv").write_bytes(b"".join(struct.pack("=QQ", *pair) for pair in pairs))

    kept = struct.iter_unpack("=QQ", recording.record(root)["proc/self/auxv"])
    assert list(kept) == [(6, 4096), (16, 3), (26, 1), (0, 0)]


def test_rules__are_those_of_the_document() -> None:
    """RECORDING.md names a path for every rule and no path without one."""
    text = (Path(recording.__file__).parent / "RECORDING.md").read_text()
    paths = re.findall(r"`([a-z]+/[^`*]+)`", text.partition("|---|")[2].partition("\n\n")[0])
    without = [path for path in paths if not any(re.fullmatch(pattern, path) for pattern, _ in RULES)]
    unnamed = [pattern for pattern, _ in RULES if not any(re.fullmatch(pattern, path) for path in paths)]

    assert (without, unnamed) == ([], [])


def test_write__needs_an_empty_place(tmp_path: Path) -> None:
    """A recording never mixes with what was there; a place that cannot be written is named."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()

    with pytest.raises(UsageError, match="the folder is not empty"):
        write_folder({"a/b": b"c"}, tmp_path / "full")
    with pytest.raises(UsageError, match="cannot be written: Not a directory"):
        write_folder({"a/b": b"c"}, tmp_path / "full/x/y")
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write_tar({"a/b": b"c"}, tmp_path / "none/x.tar")


def test_write_tar__is_the_same_for_the_same_files(tmp_path: Path) -> None:
    """No time and no user name is in it."""
    for name in ("a.tar", "b.tar"):
        write_tar({"proc/cpuinfo": b"x", "sys/y": b""}, tmp_path / name)

    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
