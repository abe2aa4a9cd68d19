# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs on the PCI bus."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.hardware.source.nvidia import ARCHS, read_nvidia
from dpfedge.hardware.source.pci import NAMES, PciDevice
from dpfedge.hardware.source.root import Root

H100 = PciDevice("0000:18:00.0", "10de:2330", "NVIDIA H100 80GB HBM3")
PROC = "proc/driver/nvidia"


def lay(root: Path, files: dict[str, str]) -> Root:
    """Files below a folder."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Root(root)


def test_nvidia__without_the_module(tmp_path: Path) -> None:
    """The hardware is there; that no driver is loaded is said by its absence."""
    [gpu] = read_nvidia(Root(tmp_path), [H100, PciDevice("0000:05:00.0", "1002:74a1", "AMD")])

    assert (gpu.kind, gpu.name, gpu.arch, gpu.place) == ("gpu.nvidia", H100.name, "sm_90", H100.address)
    assert (gpu.drivers, gpu.parts, gpu.memory_bytes) == ({}, (), None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n", "535.129.03"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (b@h)  Tue Jan  7\n"
            "GCC version:  collect2: error\n",
            "540.4.0",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06", "555.42.06"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  next\n", None),
        ("", None),
    ],
)
def test_version__of_both_modules(tmp_path: Path, text: str, version: str | None) -> None:
    """The proprietary and the open module write their version in one place."""
    [gpu] = read_nvidia(lay(tmp_path, {f"{PROC}/version": text}), [H100])

    assert gpu.drivers == ({} if version is None else {"nvidia": version})


def test_mig__instances_belong_to_the_minor_of_their_gpu(tmp_path: Path) -> None:
    """The capability folders count minors, not bus addresses; instances without a compute part can run nothing."""
    info = "Model: \t\t NVIDIA H100\x1b[31m\nGPU UUID: \t GPU-1\nDevice Minor: \t 1\n"
    mig = f"{PROC}/capabilities/gpu1/mig"
    root = lay(tmp_path, {
        f"{PROC}/gpus/{H100.address}/information": info, f"{mig}/gi10/ci0/access": "", f"{mig}/gi2/ci0/access": "",
        f"{mig}/gi3/access": "", f"{PROC}/capabilities/gpu0/mig/gi1/ci0/access": "",
    })  # fmt: skip

    [gpu] = read_nvidia(root, [H100])
    assert gpu.parts == ("gi2/ci0", "gi10/ci0")
    assert gpu.name == "NVIDIA H100?[31m"


def test_archs__are_of_known_parts() -> None:
    """Each id with an architecture has a name too."""
    assert set(ARCHS) <= set(NAMES)
