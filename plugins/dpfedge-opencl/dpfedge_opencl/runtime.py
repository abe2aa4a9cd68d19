# SPDX-License-Identifier: Apache-2.0
"""A device that this process uses: its context, queues, memory and programs, made when first needed.

A context does not survive a fork, so one is never made in a process that will fork, nor used in one that was.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from dpfedge.backend.api import Device
from dpfedge.errors import BackendError, Unavailable
from dpfedge_opencl.lanes import compiled, known_lanes
from dpfedge_opencl.library import driver
from dpfedge_opencl.memory import Memory
from dpfedge_opencl.native import Handle, Native, native
from dpfedge_opencl.ops.api import Facts
from dpfedge_opencl.probing import choose
from dpfedge_opencl.programs import Programs

__all__ = ["PRIORITIES", "NativeDevice", "Runtime", "native_device", "open_runtime"]

PRIORITIES = "cl_khr_priority_hints"
_LEVELS = ((1, 1), (4, 2), (7, 4))
"""Urgency up to this → CL_QUEUE_PRIORITY_HIGH_KHR, _MED_, _LOW_."""
_open: dict[str, Runtime] = {}
_lock = threading.Lock()
_before_fork: set[Runtime] = set()
os.register_at_fork(after_in_child=lambda: _before_fork.update(_open.values()))


@dataclass(frozen=True, slots=True)
class NativeDevice:
    """A device as the library knows it, and what is asked of it once."""

    platform: int
    handle: int
    name: str
    identity: str
    """Platform, device and driver, each with its version: what a compiled program belongs to, beside its source."""
    extensions: frozenset[str]
    features: frozenset[str]
    facts: Facts
    """As the driver tells them; those of a `Runtime` are what its compiler does."""


class Runtime:
    """One context on one device."""

    def __init__(self, device: NativeDevice, memory: str | None = None, lanes: int | None = None) -> None:
        self.device, self.native, self.where = device, native(), f"device {device.name}"
        made, where = self.native, self.where
        self.context: Handle = driver(lambda: made.context(device.handle, where), "clCreateContext", where)
        self.lanes = known_lanes(self, lanes)
        self.facts = compiled(device.facts, self.lanes, device.features)
        self.memory: Memory = choose(self, memory)
        self.programs = Programs(self.context, device.handle, device.identity)

    def queue(self, urgency: int = 3) -> Handle:
        """A new in-order queue, of the level that `urgency` (0 first to 7) folds into where the device has levels."""
        level = next(level for most, level in _LEVELS if urgency <= most)
        priority = level if PRIORITIES in self.device.extensions else None
        return driver(
            lambda: self.native.queue(self.context, self.device.handle, self.where, priority),
            "clCreateCommandQueue", self.where,
        )  # fmt: skip

    def check_process(self) -> None:
        """BackendError in a child of the process that made the context."""
        if self in _before_fork:
            raise BackendError(
                "an OpenCL context does not survive a fork", where=self.where, found=f"process {os.getpid()}",
                remedy="load the graph in the process that runs it",
            )  # fmt: skip


def open_runtime(device: Device | str, memory: str | None = None, lanes: int | None = None) -> Runtime:
    """The runtime of a device, or of that of this machine with an id; one for the life of the process.

    `memory`, the way of sharing it, and `lanes`, the floats of a vector, are known from a seal: each spares a probe.
    """
    if isinstance(device, str):
        device = _device_called(device)
    with _lock:
        if (found := _open.get(device.id)) is None:
            found = _open[device.id] = Runtime(native_device(device), memory, lanes)
    found.check_process()
    return found


def _device_called(id: str) -> Device:
    from dpfedge_opencl.devices import devices_of

    devices = devices_of(Path("/"))
    if (found := next((one for one in devices if one.id == id), None)) is None:
        raise Unavailable("no such OpenCL device", where=f"device {id}", allowed=", ".join(one.id for one in devices))
    return found


def native_device(device: Device) -> NativeDevice:
    """The library's own view of `device`; Unavailable when another one has its place by now."""
    library, where = native(), f"device {device.id}"
    listed = driver(library.devices, "clGetDeviceIDs", where)
    index = int(device.id.rpartition(":")[2])
    found = None
    if index < len(listed):
        found = driver(lambda: _asked(library, *listed[index], device), "clGetDeviceInfo", where)
    if found is None or found.name != device.name:
        raise Unavailable(
            "the OpenCL drivers list other devices than before", where=where,
            found="none" if found is None else found.name, allowed=device.name, remedy="bind again",
        )  # fmt: skip
    return found


def _asked(library: Native, platform: int, device: int, bound: Device) -> NativeDevice:
    texts = [library.text("clGetPlatformInfo", platform, what) for what in (0x0902, 0x0901)]  # name, version
    asked = (0x102B, 0x102F, 0x102D, 0x1030)  # name, version, driver's version, extensions
    name, version, built, extensions = (library.text("clGetDeviceInfo", device, what) for what in asked)
    listed = frozenset(extensions.split())
    facts = Facts(
        arch=bound.arch,
        cpu=bool(library.number(device, 0x1000) & 2),  # CL_DEVICE_TYPE_CPU
        compute_units=library.number(device, 0x1002),
        vector_width=library.number(device, 0x100A),  # preferred, of floats
        max_work_group=library.number(device, 0x1004),
        fp16="cl_khr_fp16" in listed,
        int8_dot=bool(listed & {"cl_khr_integer_dot_product", "cl_arm_integer_dot_product_int8"}),
    )
    identity = "\n".join((*texts, name, version, built))
    return NativeDevice(platform, device, name, identity, listed, bound.features, facts)
