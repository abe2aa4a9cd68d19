# SPDX-License-Identifier: Apache-2.0
"""GPUs of phone and car chips."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.hardware.source.mali import read_adreno, read_mali
from dpfedge.hardware.source.root import Root

RK3588 = ("radxa,rock-5b", "rockchip,rk3588")


def lay(root: Path, files: dict[str, str]) -> Root:
    """Files below a folder."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Root(root)


@pytest.mark.parametrize(
    ("info", "name", "arch"),
    [
        ("Mali-G610 4 cores r0p0 0xA867\n", "Mali-G610", "mali-g610"),
        ("Mali-LODX 4 cores r0p0 0xA867\n", "Mali-G610", "mali-g610"),
        ("Immortalis-G720 10 cores r0p0 0xC800\n", "Mali-G720", "mali-g720"),
        ("\x1b[31m\n", "Mali", None),
    ],
)
def test_mali__by_arms_driver(tmp_path: Path, info: str, name: str, arch: str | None) -> None:
    """The driver names the product; the release of its kernel part is its version."""
    files = {
        "sys/class/misc/mali0/device/gpuinfo": info,
        "sys/module/valhall_kbase/version": "g29p0-00eac0 (UK version 1.36)",
    }
    [gpu] = read_mali(lay(tmp_path, files), RK3588, "6.1.75")

    assert (gpu.name, gpu.arch, gpu.place, gpu.drivers) == (name, arch, "mali0", {"mali": "29.0"})


def test_mali__by_the_kernels_driver(tmp_path: Path) -> None:
    """Other DRM cards are passed over; the driver has the kernel's version."""
    event = "DRIVER=panthor\nOF_NAME=gpu\nOF_COMPATIBLE_0=rockchip,rk3588-mali\nOF_COMPATIBLE_1=arm,mali-valhall-csf\n"
    root = lay(tmp_path, {
        "sys/class/drm/card0/device/uevent": "DRIVER=rockchip-drm\n", "sys/class/drm/card1/device/uevent": event,
        "sys/class/drm/version": "drm 1.1.0\n",
    })  # fmt: skip

    [gpu] = read_mali(root, RK3588, "6.10.3")
    assert (gpu.arch, gpu.place, gpu.drivers) == ("mali-g610", "card1", {"panthor": "6.10.3"})


def test_mali__by_the_chips_documents(tmp_path: Path) -> None:
    """Without any driver the device tree tells the chip, and the chip its GPU; no other chip has one."""
    [gpu] = read_mali(Root(tmp_path), ("fsl,imx95-19x19-evk", "fsl,imx95"), "6.12.0")

    assert (gpu.arch, gpu.drivers) == ("mali-g310", {})
    assert read_mali(Root(tmp_path), ("nvidia,tegra234",), "6.12.0") == ()


@pytest.mark.parametrize(("text", "arch"), [("Adreno663v1\n", "adreno-663"), ("Adreno 830\n", "adreno-830")])
def test_adreno__by_qualcomms_driver(tmp_path: Path, text: str, arch: str) -> None:
    """The model's number is its architecture; text of another form gives nothing."""
    [gpu] = read_adreno(lay(tmp_path, {"sys/class/kgsl/kgsl-3d0/gpu_model": text}))

    assert (gpu.kind, gpu.arch) == ("gpu.qualcomm", arch)
    assert read_adreno(lay(tmp_path, {"sys/class/kgsl/kgsl-3d0/gpu_model": "A"})) == ()
