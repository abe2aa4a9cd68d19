# SPDX-License-Identifier: Apache-2.0
"""`dpfedge backends`: the backend plugins that were found, their devices here, and what is broken."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dpfedge.backend.registry import Registry

NAME = "backends"
HELP = "List the backend plugins that were found.\n\nexample: dpfedge backends --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print every backend with its devices."""
    registry = Registry.load()
    rows = [_row(registry, name) for name in registry.names()]
    broken = [asdict(item) | {"remedy": item.remedy} for item in registry.broken()]
    if args.json:
        print(json.dumps({"backends": rows, "broken": broken}, indent=2))
        return 0
    for row in rows:
        print(f"{row['name']} {row['version']} (contract {row['abi']})")
        for device in row["devices"]:
            print(f"  {device['id']}  {device['kind']}  {device['arch']}  {device['memory_bytes'] / 2**30:.1f} GiB")
    for item in broken:
        print(f"{item['plugin']}: {item['hook']}: {item['reason']}; {item['remedy']}")
    return 0


def _row(registry: Registry, name: str) -> dict[str, Any]:
    backend = registry.get(name)
    devices = [
        {"id": d.id, "kind": d.kind, "arch": d.arch, "features": sorted(d.features), "memory_bytes": d.memory_bytes}
        for d in backend.devices(Path("/"))
    ]
    return {"name": name, "version": backend.version, "abi": backend.abi, "devices": devices}
