# SPDX-License-Identifier: Apache-2.0
"""GPUs of phone and car chips: Arm's and Qualcomm's kernel drivers and the device tree in, accelerators out.

What OpenCL or Vulkan would call them is another matter: no library is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dpfedge.hardware.source.accelerator import Accelerator
from dpfedge.hardware.source.root import Root

__all__ = ["read_adreno", "read_mali"]

_KBASE = "sys/class/misc/mali0/device"
_MODULES = ("mali_kbase", "bifrost_kbase", "valhall_kbase")
_DRM = "sys/class/drm"
_OPEN = ("panthor", "panfrost")
_DDK = re.compile(r"[a-z]([0-9]{1,3})p([0-9]{1,3})\b")  # g24p0, r54p1
_ADRENO = re.compile(r"Adreno(?:\(TM\))? ?([0-9]{3,4})")
_PRODUCT = re.compile(r"(?:Mali|Immortalis)-([A-Za-z0-9]{1,12})\b")
_CHIPS: Mapping[str, str] = {"rockchip,rk3588": "G610", "rockchip,rk3588s": "G610", "fsl,imx95": "G310"}
# linux: Documentation/devicetree/bindings/gpu/arm,mali-valhall-csf.yaml
_NODES: Mapping[str, str] = {"rockchip,rk3588-mali": "G610", "nxp,imx95-mali": "G310"}
_ALIASES = {"LODX": "G610"}  # what the vendor driver g6p0 calls the G610 of RK3588


def read_mali(root: Root, compatible: Sequence[str], kernel: str | None) -> tuple[Accelerator, ...]:
    """The Mali GPU by Arm's driver, else by the kernel's, else as the chip's documents name it, without a driver."""
    if (info := root.text(f"{_KBASE}/gpuinfo")) is not None:
        match = _PRODUCT.match(info)
        return (_mali(match[1] if match else "", "mali0", _ddk(root)),)
    for card in root.names(_DRM):
        event = root.text(f"{_DRM}/{card}/device/uevent") if re.fullmatch(r"card[0-9]{1,3}", card) else None
        fields = dict(line.partition("=")[::2] for line in (event or "").splitlines())
        if fields.get("DRIVER") in _OPEN:
            name = next((name for key, name in _NODES.items() if key in fields.values()), "")
            return (_mali(name, card, {fields["DRIVER"]: kernel} if kernel else {}),)
    return tuple(_mali(_CHIPS[name], name, {}) for name in compatible if name in _CHIPS)[:1]


def _mali(name: str, place: str, drivers: Mapping[str, str]) -> Accelerator:
    name = _ALIASES.get(name, name)
    title, arch = (f"Mali-{name}", f"mali-{name.lower()}") if name else ("Mali", None)
    return Accelerator("gpu.arm", title, place, arch, None, True, drivers)


def _ddk(root: Root) -> dict[str, str]:
    for module in _MODULES:
        if match := _DDK.match(root.text(f"sys/module/{module}/version") or ""):
            return {"mali": f"{match[1]}.{match[2]}"}
    return {}


def read_adreno(root: Root) -> tuple[Accelerator, ...]:
    """The Adreno GPU of Qualcomm's own kernel driver (kgsl)."""
    match = _ADRENO.match(root.text("sys/class/kgsl/kgsl-3d0/gpu_model") or "")
    if match is None:
        return ()
    return (Accelerator("gpu.qualcomm", f"Adreno {match[1]}", "kgsl-3d0", f"adreno-{match[1]}", None, True),)
