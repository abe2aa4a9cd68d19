# SPDX-License-Identifier: Apache-2.0
"""`dpfedge probe`: a root directory in, what the machine is, as text or JSON, out."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dpfedge.hardware.accelerators import Accelerator
from dpfedge.hardware.cpu import Cache, Cpu
from dpfedge.hardware.probe import Machine, probe
from dpfedge.hardware.sysroot import machine_root

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "probe"
HELP = """Show what this machine is: CPU, caches, memory, limits, device tree, PCI devices, GPUs; or record it.

examples:
  dpfedge probe --json
  dpfedge probe --record car --tar car.tar     what binding needs of this machine, for `dpfedge bind --sysroot car.tar`

A recording holds no serial number, host name, MAC address or user name; its files are listed in
`dpfedge/hardware/RECORDING.md`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--sysroot", default="/", metavar="DIR", help="a recorded machine (folder or .tar) instead of this one"
    )
    parser.add_argument("--record", type=Path, metavar="DIR", help="write what was read into a new folder")
    parser.add_argument("--tar", type=Path, metavar="FILE", help="write what was read into a tar file")


def run(args: argparse.Namespace) -> int:
    """Probe and print, or record."""
    with machine_root(args.sysroot) as root:
        if args.record or args.tar:
            return _record(root, args)
        machine = replace(probe(root), sysroot=os.path.realpath(args.sysroot))
    print(json.dumps(asdict(machine), default=_plain, indent=2) if args.json else "\n".join(_lines(machine)))
    return 0


def _record(root: Path, args: argparse.Namespace) -> int:
    from dpfedge.hardware.recording import record, write_folder, write_tar

    files = record(root)
    for place, write in ((args.record, write_folder), (args.tar, write_tar)):
        if place is not None:
            write(files, place)
    places = [str(place) for place in (args.record, args.tar) if place is not None]
    size = sum(map(len, files.values()))
    if args.json:
        print(json.dumps({"recorded": places, "bytes": size, "files": list(files)}, indent=2))
    else:
        print(
            "\n".join([f"recorded {len(files)} files, {size} bytes: {', '.join(places)}", *map("  {}".format, files)])
        )
    return 0


def _plain(value: Any) -> list[Any]:
    return sorted(value)  # feature sets are the only values JSON lacks


def _lines(machine: Machine) -> Iterator[str]:
    cpu, limits = machine.cpu, machine.limits
    yield f"cpu        {cpu.model or 'unknown'}"
    yield f"arch       {cpu.arch}, {cpu.level}"
    yield f"features   {' '.join(sorted(cpu.features)) or 'none known'}"
    yield f"cores      {_cores(cpu)}"
    if len(cpu.clusters) > 1:
        yield from (f"cluster    {c.name}: cores {_ranges(c.cores)}, capacity {c.capacity}" for c in cpu.clusters)
    yield from (f"cache      {_cache(cache)}" for cache in cpu.caches)
    memory = machine.memory
    yield f"memory     {_size(memory.total)}, {_size(memory.available)} available, pages of {_size(machine.page_bytes)}"
    yield f"cgroup     {_limits(limits.cpus, limits.memory, limits.version)}"
    yield f"kernel     {machine.kernel}"
    if machine.device_tree is not None:
        yield f"model      {machine.device_tree.model}"
        yield f"compatible {' '.join(machine.compatible)}"
    if machine.dmi:
        yield f"dmi        {', '.join(f'{key} {value}' for key, value in machine.dmi.items())}"
    yield from (f"pci        {device.address} {device.id} {device.name}" for device in machine.displays)
    yield from (f"gpu        {_accelerator(gpu)}" for gpu in machine.accelerators)
    yield from (f"note       {note}" for note in machine.notes)


def _cores(cpu: Cpu) -> str:
    text = f"{len(cpu.cores)} logical, {cpu.physical} physical"
    return text if len(cpu.allowed) == len(cpu.cores) else f"{text}, {len(cpu.allowed)} for this process"


def _cache(cache: Cache) -> str:
    shared = f", shared by {cache.shared_by} cores" if cache.shared_by > 1 else ""
    return f"L{cache.level} {cache.kind} {_size(cache.size_bytes)}{shared} ({cache.cluster})"


def _accelerator(gpu: Accelerator) -> str:
    parts = [f"{gpu.place} {gpu.kind} {gpu.name}, {gpu.arch or 'unknown architecture'}"]
    if gpu.unified_memory:
        parts.append("shares the memory")
    elif gpu.memory_bytes is not None:
        parts.append(_size(gpu.memory_bytes))
    parts += [f"driver {name} {version}" for name, version in gpu.drivers.items()] or ["no driver"]
    if gpu.parts:
        parts.append(f"split into {len(gpu.parts)}: {' '.join(gpu.parts)}")
    return ", ".join(parts)


def _limits(cpus: float | None, memory: int | None, version: int | None) -> str:
    if version is None:
        return "none"
    parts = [
        "no CPU limit" if cpus is None else f"{cpus:g} CPUs",
        "no memory limit" if memory is None else _size(memory),
    ]
    return f"version {version}, {', '.join(parts)}"


def _ranges(cores: Sequence[int]) -> str:
    if cores[-1] - cores[0] == len(cores) - 1 and len(cores) > 1:
        return f"{cores[0]}-{cores[-1]}"
    return ",".join(map(str, cores))


def _size(size: int) -> str:
    if not size:
        return "unknown"
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
