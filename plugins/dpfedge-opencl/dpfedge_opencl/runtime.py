# SPDX-License-Identifier: Apache-2.0
"""A device that this process uses: its context, queues, memory and programs, made when first needed.

A context does not survive a fork, so one is never made in a process that will fork, nor used in one that was.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from dpfedge.backend.api import Device
from dpfedge.errors import BackendError, Unavailable
from dpfedge_opencl.library import Native, driver, native, pyopencl
from dpfedge_opencl.memory import Memory
from dpfedge_opencl.ops.api import Facts
from dpfedge_opencl.probing import choose
from dpfedge_opencl.programs import Programs

__all__ = ["Runtime", "open_runtime"]

_open: dict[str, Runtime] = {}
_lock = threading.Lock()


class Runtime:
    """One context on one device."""

    def __init__(self, device: Any, arch: str, memory: str | None = None) -> None:
        self.device, self.pid = device, os.getpid()
        self.native: Native = native()
        self.where = f"device {device.name}"
        cl = pyopencl()
        self.context = driver(lambda: cl.Context([device]), "clCreateContext", self.where)
        probing = self.queue()
        self.memory: Memory = choose(self.context, probing, device, self.where, memory)
        self.programs = Programs(self.context, device)
        self.facts = facts_of(device, arch)

    def queue(self) -> Any:
        """A new in-order queue."""
        cl = pyopencl()
        return driver(lambda: cl.CommandQueue(self.context, self.device), "clCreateCommandQueue", self.where)

    def check_process(self) -> None:
        """BackendError in a child of the process that made the context."""
        if os.getpid() != self.pid:
            raise BackendError(
                "an OpenCL context does not survive a fork", where=self.where, found=f"made by process {self.pid}",
                remedy="load the graph in the process that runs it",
            )  # fmt: skip


def facts_of(device: Any, arch: str) -> Facts:
    """What operators choose kernels by."""
    extensions = set(device.extensions.split())
    return Facts(
        arch=arch,
        cpu=bool(device.type & pyopencl().device_type.CPU),
        compute_units=int(device.max_compute_units),
        vector_width=int(device.preferred_vector_width_float),
        max_work_group=int(device.max_work_group_size),
        fp16="cl_khr_fp16" in extensions,
        int8_dot=bool(extensions & {"cl_khr_integer_dot_product", "cl_arm_integer_dot_product_int8"}),
    )


def open_runtime(device: Device | str, memory: str | None = None) -> Runtime:
    """The runtime of a device, or of that of this machine with an id; one for the life of the process.

    `memory` is the way of sharing memory that a seal knows of, which spares a probe.
    """
    if isinstance(device, str):
        device = _device_called(device)
    with _lock:
        if (found := _open.get(device.id)) is None:
            found = _open[device.id] = Runtime(_native(device), device.arch, memory)
    found.check_process()
    return found


def _device_called(id: str) -> Device:
    from dpfedge_opencl.devices import devices_of

    devices = devices_of(Path("/"))
    if (found := next((one for one in devices if one.id == id), None)) is None:
        raise Unavailable("no such OpenCL device", where=f"device {id}", allowed=", ".join(one.id for one in devices))
    return found


def _native(device: Device) -> Any:
    """The library's own object for `device`; Unavailable when another one has its place by now."""
    cl, where = pyopencl(), f"device {device.id}"
    found = driver(
        lambda: [one for platform in cl.get_platforms() for one in platform.get_devices()], "clGetPlatformIDs", where
    )
    index = int(device.id.rpartition(":")[2])
    name = found[index].name.strip() if index < len(found) else "none"
    if name != device.name:
        raise Unavailable(
            "the OpenCL drivers list other devices than before", where=where, found=name, allowed=device.name,
            remedy="bind again",
        )  # fmt: skip
    return found[index]
