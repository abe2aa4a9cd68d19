# SPDX-License-Identifier: Apache-2.0
"""What a device is, in seventeen fields: files below a root in, one record for each device out; `FINGERPRINT.md` binds.

It reads files only, hashes nothing and sends nothing. A serial number is in the record as it was read: whoever shows
or sends one hashes it first (`dpfedge.routing.fingerprint`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from dpfedge.hardware.accelerators import Accelerator
from dpfedge.hardware.probe import Machine, probe_root
from dpfedge.hardware.source.aer import read_errors
from dpfedge.hardware.source.root import Root, label
from dpfedge.records import dataclass

__all__ = ["FIELDS", "DevicePrint", "Told", "read_prints"]

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"([0-9]{1,4})(?:\.([0-9]))? GT/s")
_ENDS = (("", "current"), ("_max", "max"))
_TREES = ("proc/device-tree", "sys/firmware/devicetree/base")


@dataclass(frozen=True, slots=True)
class DevicePrint:
    """One device. The order of the fields is that of FINGERPRINT.md; None is what no file tells."""

    kind: str
    name: str
    vendor: str | None
    device: str | None
    subsystem: str | None
    revision: str | None
    arch: str | None
    memory_bytes: int | None
    driver: str | None
    firmware: str | None
    link_width: int | None
    link_width_max: int | None
    link_speed: int | None
    """MT/s, as the next one: whole numbers, so that the encoding has no fractions."""
    link_speed_max: int | None
    aer_corrected: int | None
    aer_uncorrected: int | None
    serial: str | None


Told = Mapping[str, Mapping[str, Any]]
"""PCI address → what a driver tells: `serial`, `firmware`, `memory_bytes`, as far as it does."""

FIELDS = tuple(field.name for field in fields(DevicePrint))


def read_prints(root: Root, told: Told | None = None) -> tuple[DevicePrint, ...]:
    """The CPU, then every accelerator in the order of `Machine.accelerators`; `told` fills what no file tells."""
    machine = probe_root(root)
    prints = (_of_cpu(root, machine), *(_of(root, machine, one) for one in machine.accelerators))
    rows = [None, *((told or {}).get(one.place) for one in machine.accelerators)]
    return tuple(one if row is None else _filled(one, row) for one, row in zip(prints, rows, strict=True))


def _filled(one: DevicePrint, told: Mapping[str, Any]) -> DevicePrint:
    """What the driver tells, a serial number above all, where files do not; a card's own is better than an id of it."""
    empty = {name: told[name] for name in ("firmware", "memory_bytes") if getattr(one, name) is None and told.get(name)}
    return replace(one, **empty, serial=told.get("serial") or one.serial)


def _of_cpu(root: Root, machine: Machine) -> DevicePrint:
    ids = dict(_cpuinfo(root.text("proc/cpuinfo") or ""))
    return DevicePrint(
        kind=f"cpu.{machine.arch}", name=machine.cpu.model,
        vendor=ids.get("vendor_id") or ids.get("CPU implementer"),
        device=_joined(ids, "cpu family", "model", "CPU part"),
        subsystem=" ".join(machine.compatible[:1]) or machine.dmi.get("product"),
        revision=_joined(ids, "stepping", "CPU variant", "CPU revision"), arch=machine.cpu.level,
        memory_bytes=machine.memory.total or None, driver=f"linux {machine.kernel}",
        firmware=_told(root, "sys/devices/system/cpu/cpu0/microcode/version") or machine.dmi.get("bios"),
        **_no_link(), serial=_machine_serial(root),
    )  # fmt: skip


def _cpuinfo(text: str) -> Iterator[tuple[str, str]]:
    """The first core's lines."""
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        yield name.strip(), label(value.strip())


def _joined(ids: Mapping[str, str], *names: str) -> str | None:
    return "-".join(ids[name] for name in names if ids.get(name)) or None


def _of(root: Root, machine: Machine, one: Accelerator) -> DevicePrint:
    on_bus = _PCI.fullmatch(one.place) is not None
    place = f"sys/bus/pci/devices/{one.place}"
    told = _information(root, one.place)
    tree = None if on_bus else " ".join(machine.compatible[:1]) or None
    return DevicePrint(
        kind=one.kind, name=one.name, vendor=_id(root, f"{place}/vendor"), device=_id(root, f"{place}/device") or tree,
        subsystem=_pair(_id(root, f"{place}/subsystem_vendor"), _id(root, f"{place}/subsystem_device")),
        revision=_id(root, f"{place}/revision"), arch=one.arch, memory_bytes=one.memory_bytes,
        driver=" ".join(f"{name} {version}" for name, version in sorted(one.drivers.items())) or None,
        firmware=told.get("Video BIOS") or _told(root, f"{place}/vbios_version") or machine.dmi.get("bios"),
        **(_link(root, place, one.place) if on_bus else _no_link()),
        serial=told.get("GPU UUID") or _told(root, f"{place}/unique_id") or (None if on_bus else _machine_serial(root)),
    )  # fmt: skip


def _information(root: Root, address: str) -> dict[str, str]:
    rows = (
        line.partition(":") for line in (root.text(f"proc/driver/nvidia/gpus/{address}/information") or "").splitlines()
    )
    return {key.strip(): label(value.strip()) for key, _, value in rows if "?" not in value}  # before it is initialised


def _link(root: Root, place: str, address: str) -> dict[str, int | None]:
    errors = read_errors(root, address)
    found = {f"link_width{to}": root.number(f"{place}/{of}_link_width") or None for to, of in _ENDS}  # 0: link down
    found |= {f"link_speed{to}": _speed(root, f"{place}/{of}_link_speed") for to, of in _ENDS}
    found["aer_corrected"] = None if errors is None else errors.corrected
    return found | {"aer_uncorrected": None if errors is None else errors.nonfatal + errors.fatal}


def _no_link() -> dict[str, None]:
    names = ("link_width", "link_width_max", "link_speed", "link_speed_max", "aer_corrected", "aer_uncorrected")
    return dict.fromkeys(names)


def _speed(root: Root, path: str) -> int | None:
    """`8 GT/s` and `8.0 GT/s PCIe` are 8000; `Unknown` is None."""
    match = _SPEED.match(root.text(path) or "")
    return int(match[1]) * 1000 + int(match[2] or 0) * 100 if match else None


def _id(root: Root, path: str) -> str | None:
    number = root.number(path, 16)
    return f"{number:04x}" if number is not None and 0 <= number <= 0xFFFF else None


def _pair(first: str | None, second: str | None) -> str | None:
    return None if first is None or second is None else f"{first}:{second}"


def _told(root: Root, path: str) -> str | None:
    return label(root.text(path) or "") or None


def _machine_serial(root: Root) -> str | None:
    """Of the board; DMI's is root's to read, and then nothing is told."""
    paths = (*(f"{tree}/serial-number" for tree in _TREES), "sys/class/dmi/id/product_serial")
    return next((text for path in paths if (text := _told(root, path))), None)
