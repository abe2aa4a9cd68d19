# SPDX-License-Identifier: Apache-2.0
"""Programs of one context: out of a seal, else built from source, once for every graph that uses them.

It sets no argument and starts no kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dpfedge.errors import BackendError
from dpfedge_opencl.library import driver, pyopencl
from dpfedge_opencl.plan import Kernel
from dpfedge_opencl.sealed import Store, key_of

__all__ = ["Programs", "identity_of"]

_BUILD_S = 600.0


def identity_of(device: Any) -> str:
    """What a compiled program belongs to, beside its source: platform, device and driver, each with its version."""
    platform = device.platform
    return "\n".join(
        str(part) for part in (platform.name, platform.version, device.name, device.version, device.driver_version)
    )


class Programs:
    """The built programs of one device."""

    def __init__(self, context: Any, device: Any) -> None:
        self._context, self._device = context, device
        self._identity = identity_of(device)
        self._built: dict[str, Any] = {}
        self._known: dict[Kernel, tuple[str, int]] = {}
        self._stores: list[Store] = []
        self._used: set[str] | None = None
        self._lock = threading.Lock()
        self.from_source = self.from_seal = 0
        """How many programs came from where so far."""

    def add(self, store: Store) -> None:
        """Take programs from `store` where it has them."""
        with self._lock:
            self._stores.append(store)

    def remove(self, store: Store) -> None:
        """Take no more from `store`."""
        with self._lock:
            self._stores.remove(store)

    def handle(self, kernel: Kernel, where: str) -> int:
        """The built program that holds `kernel`."""
        with self._lock:
            if (known := self._known.get(kernel)) is None:
                key = key_of(self._identity, kernel.source, kernel.options)
                if key not in self._built:
                    self._built[key] = self._sealed(key, kernel, where) or self._compiled(kernel, where)
                known = self._known[kernel] = key, int(self._built[key].int_ptr)
            if self._used is not None:
                self._used.add(known[0])
        return known[1]

    @contextmanager
    def used(self) -> Iterator[set[str]]:
        """Keys of the programs that are asked for inside."""
        found: set[str] = set()
        self._used = found
        try:
            yield found
        finally:
            self._used = None

    def binaries(self, keys: set[str], where: str) -> Mapping[str, bytes]:
        """Built programs as the driver gives them away."""
        info = pyopencl().program_info.BINARIES
        with self._lock:
            programs = {key: self._built[key] for key in sorted(keys)}
        return {
            key: bytes(driver(lambda one=one: one.get_info(info)[0], "clGetProgramInfo", where, _BUILD_S))  # type: ignore[misc]
            for key, one in programs.items()
        }

    def _compiled(self, kernel: Kernel, where: str) -> Any:
        made = self._build(lambda cl: cl.Program(self._context, kernel.source), kernel, where)
        self.from_source += 1
        return made

    def _sealed(self, key: str, kernel: Kernel, where: str) -> Any | None:
        """The program out of a seal; None where no seal has it, or where the driver no longer takes it."""
        data = next((data for store in self._stores if (data := store.program(key)) is not None), None)
        if data is None:
            return None
        try:
            made = self._build(lambda cl: cl.Program(self._context, [self._device], [data]), kernel, where)
        except BackendError:
            return None
        self.from_seal += 1
        return made

    def _build(self, make: Any, kernel: Kernel, where: str) -> Any:
        cl, options = pyopencl(), [*kernel.options, "-w"]  # drivers write warnings to stderr
        return driver(
            lambda: make(cl).build(options, cache_dir=False), f"clBuildProgram({kernel.entry})", where, _BUILD_S
        )
