# SPDX-License-Identifier: Apache-2.0
"""GPUs and MIG instances as devices: recorded machines, and what NVML adds on this one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dpfedge_cuda.devices import features_of, list_devices, memory_of

from dpfedge.backend.accelerators import Accelerator, accelerators
from dpfedge.backend.api import Device
from dpfedge.errors import Unavailable

MACHINES = Path(__file__).parents[3] / "fixtures" / "machines"
LIVE = Path("/")
DRIVERS = {"nvidia": "580.65.06"}
UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
MIG = ("MIG-c7384736-a75d-5afc-978f-d2f1294409fd", "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d")


def never() -> Mapping[str, Any]:
    """NVML must not be asked."""
    raise AssertionError("NVML was asked")


def recorded(name: str) -> list[Device]:
    """Devices of a recorded machine."""
    root = MACHINES / name
    return list_devices(accelerators(root), root, never, {"CUDA_VISIBLE_DEVICES": ""})


def told(place: str, **more: Any) -> dict[str, Any]:
    """What NVML says of one GPU."""
    usual = {"uuid": UUID, "name": "NVIDIA H100 80GB HBM3", "pci": place, "memory": 85_899_345_920, "capability": 90,
             "vbios": "96.00", "serial": "165", "mig": None}  # fmt: skip
    return {**usual, **more}


def gpu(place: str = "0000:18:00.0", **more: Any) -> Accelerator:
    """One on the bus."""
    usual: dict[str, Any] = {"kind": "gpu.nvidia", "name": "NVIDIA H100 80GB HBM3", "arch": "sm_90", "drivers": DRIVERS}
    return Accelerator(place=place, **{**usual, **more})


def test_list_devices__of_a_recorded_machine() -> None:
    """From files alone, in the order of the bus; nothing of this machine, nor of its environment."""
    found = recorded("h100")
    assert [one.id for one in found] == [f"cuda:{index}" for index in range(len(found))]
    assert {(one.arch, one.memory_bytes, one.kind) for one in found} == {("sm_90", 80 * 10**9, "gpu.nvidia")}
    assert found[0].facts["pci"] == "0000:18:00.0"
    assert found[0].drivers["nvidia"]
    assert {"fp16", "int8", "bf16", "tf32", "fp8"} == found[0].features


def test_list_devices__of_recorded_mig() -> None:
    """Each instance is one, with the least memory any profile has; the GPU itself is none."""
    found = recorded("h100-mig")
    assert found
    assert all("/gi" in one.id and "/ci" in one.id for one in found)
    assert {one.memory_bytes for one in found} == {10 * 10**9}


@pytest.mark.parametrize("name", ["orin-agx", "orin-nano", "thor", "mi300x", "rk3588", "imx95"])
def test_list_devices__of_others(name: str) -> None:
    """GPUs inside a Tegra are those of `dpfedge-jetson`."""
    assert recorded(name) == []


def test_list_devices__files_suffice_for_known_parts() -> None:
    """Binding asks no driver on machines whose parts are in the tables."""
    (found,) = list_devices([gpu()], LIVE, never, {})
    assert found.memory_bytes == 80 * 10**9


def test_list_devices__nvml_knows_desktop_gpus() -> None:
    """Their code target and memory stand in no file."""
    desktop = gpu(name="display device 10de:2684", arch=None)
    answer = {"gpus": [told("0000:18:00.0", name="NVIDIA GeForce RTX 4090", capability=89, memory=25_757_220_864)]}
    (found,) = list_devices([desktop], LIVE, lambda: answer, {})
    assert (found.name, found.arch, found.memory_bytes) == ("NVIDIA GeForce RTX 4090", "sm_89", 25_757_220_864)
    assert found.facts == {"pci": "0000:18:00.0", "uuid": UUID, "serial": "165", "vbios": "96.00"}
    assert list_devices([desktop], LIVE, lambda: {"gpus": []}, {}) == []


def mig() -> dict[str, Any]:
    """A GPU of two instances."""
    parts = [{"uuid": uuid, "name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "place": f"gi{index + 1}/ci0",
              "memory": 40 << 30}
             for index, uuid in enumerate(MIG)]  # fmt: skip
    return {"gpus": [told("0000:18:00.0", mig=parts)]}


def test_list_devices__mig_by_nvml() -> None:
    """With the UUID by which CUDA is told of it, and the memory it has."""
    found = list_devices([gpu(parts=("gi1/ci0", "gi2/ci0"))], LIVE, mig, {})
    assert [one.id for one in found] == ["cuda:0/gi1/ci0", "cuda:0/gi2/ci0"]
    assert [one.facts["uuid"] for one in found] == list(MIG)
    assert {one.memory_bytes for one in found} == {40 << 30}
    assert found[0].name == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("1", ["cuda:1"]),
        ("1,0", ["cuda:1", "cuda:0"]),
        ("0,7,1", ["cuda:0"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        (UUID, ["cuda:0"]),
        (UUID[:12], ["cuda:0"]),
        ("GPU-ffffffff", []),
        ("0,0", []),
        (f"{UUID},{UUID[:12]}", []),
        (f"1,{UUID}", ["cuda:1"]),
        (f"{UUID},1", ["cuda:0"]),
        ("GPU-", []),
        ("all", []),
        ("0 1", []),
        (" 0 , 1 ", ["cuda:0", "cuda:1"]),
        ("\u0661", []),
        ("9" * 5000, []),
    ],
)
def test_list_devices__that_the_environment_leaves(text: str, ids: list[str]) -> None:
    """In the order it names them, up to the first that names nothing, as CUDA has it; one named twice leaves none."""
    both = [gpu(), gpu("0000:2a:00.0")]
    answer = {"gpus": [told("0000:18:00.0"), told("0000:2a:00.0", uuid="GPU-11111111-0000")]}
    found = list_devices(both, LIVE, lambda: answer, {"CUDA_VISIBLE_DEVICES": text})
    assert [one.id for one in found] == ids


@pytest.mark.parametrize("text", [MIG[1], f"MIG-{UUID}/2/0"])
def test_list_devices__both_forms_of_a_mig_uuid(text: str) -> None:
    """The new one names the instance, the old one its place in the GPU."""
    found = list_devices([gpu(parts=("gi1/ci0",))], LIVE, mig, {"CUDA_VISIBLE_DEVICES": text})
    assert [one.id for one in found] == ["cuda:0/gi2/ci0"]


def test_list_devices__without_a_kernel_driver() -> None:
    """Unavailable, with the GPU and what to load."""
    with pytest.raises(Unavailable, match=r"no kernel driver is loaded.*H100.*0000:18:00.0.*modprobe nvidia"):
        list_devices([gpu(drivers={})], LIVE, never, {})


def test_list_devices__without_the_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unavailable, with the node."""
    monkeypatch.setattr("dpfedge_cuda.devices.os.access", lambda path, mode: False)
    monkeypatch.setattr("dpfedge_cuda.devices.Path.exists", lambda path: True)
    with pytest.raises(Unavailable, match=r"may not be opened; found /dev/nvidiactl; .*doctor --backend cuda"):
        list_devices([gpu()], LIVE, never, {})


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("NVIDIA A100-SXM4-40GB", 40),
        ("NVIDIA H200", 141),
        ("NVIDIA L4", 24),
        ("NVIDIA GH200 480GB", 96),
        ("NVIDIA X", 0),
    ],
)
def test_memory_of__a_name(name: str, gigabytes: int) -> None:
    """In the name, or in a table; GH200's 480 GB are the CPU's."""
    assert memory_of(name) == gigabytes * 10**9


def test_features_of__grow() -> None:
    """What each generation multiplies in."""
    assert features_of("sm_75") == {"fp16", "int8"}
    assert features_of("sm_120") == {"fp16", "int8", "bf16", "tf32", "fp8", "fp4"}
