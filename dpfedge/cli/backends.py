# SPDX-License-Identifier: Apache-2.0
"""`dpfedge backends`: the backend plugins that were found, their devices here or of a recording, what is broken."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dpfedge.backend.api import Backend, Device
from dpfedge.backend.registry import Registry
from dpfedge.hardware.sysroot import machine_root
from dpfedge.plugin.border import Border

NAME = "backends"
HELP = """List the backend plugins that were found.

examples:
  dpfedge backends --json
  dpfedge backends --sysroot car.tar     devices of a recorded machine"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--sysroot", default="/", metavar="DIR", help="a recorded machine (folder or .tar) instead of this one"
    )


def run(args: argparse.Namespace) -> int:
    """Print every backend with its devices; one that cannot tell them says why, and the others follow."""
    registry = Registry.load()
    with machine_root(args.sysroot) as root:
        rows = [_row(registry, name, root) for name in registry.names()]
    broken = [asdict(item) | {"remedy": item.remedy} for item in registry.broken()]
    if args.json:
        print(json.dumps({"backends": rows, "broken": broken}, indent=2))
        return 0
    for row in rows:
        print(f"{row['name']} {row['version']} (contract {row['abi']})")
        for device in row["devices"]:
            print(f"  {device['id']}  {device['kind']}  {device['arch']}  {device['memory_bytes'] / 2**30:.1f} GiB")
        if row["unavailable"]:
            print(f"  unavailable: {row['unavailable']}")
    for item in broken:
        print(f"{item['plugin']}: {item['hook']}: {item['reason']}; {item['remedy']}")
    return 0


def _row(registry: Registry, name: str, root: Path) -> dict[str, Any]:
    backend = registry.get(name)
    reasons: list[str] = []
    devices: list[dict[str, Any]] = []
    with Border(reasons.append):
        devices = [_device(backend, device) for device in backend.devices(root)]
    reason = reasons[0] if reasons else None
    return {
        "name": name, "version": backend.version, "abi": backend.abi, "devices": devices, "unavailable": reason,
    }  # fmt: skip


def _device(backend: Backend, device: Device) -> dict[str, Any]:
    can = asdict(backend.capabilities(device))
    return {
        "id": device.id, "kind": device.kind, "arch": device.arch, "features": sorted(device.features),
        "memory_bytes": device.memory_bytes, "capabilities": can | {"dtypes": sorted(can["dtypes"])},
    }  # fmt: skip
