# SPDX-License-Identifier: Apache-2.0
"""Programs of one context: out of a seal, else built from source, once for every graph that uses them.

It sets no argument and starts no kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from dpfedge.errors import BackendError, Unavailable
from dpfedge_opencl.library import build_seconds, driver
from dpfedge_opencl.native import Handle, native
from dpfedge_opencl.plan import Kernel
from dpfedge_opencl.sealed import Store, key_of

__all__ = ["Programs"]


class Programs:
    """The built programs of one device."""

    def __init__(self, context: Handle, device: int, identity: str) -> None:
        self._context, self._device, self._identity = context, device, identity
        self._built: dict[str, Handle] = {}
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
                known = self._known[kernel] = key, self._built[key].value
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

    def binaries(self, keys: Collection[str], where: str) -> Mapping[str, bytes]:
        """Built programs as the driver gives them away."""
        with self._lock:
            programs = {key: self._built[key] for key in sorted(keys)}
        return {key: self._binary(one, where) for key, one in programs.items()}

    def _binary(self, program: Handle, where: str) -> bytes:
        return driver(lambda: native().binary(program, where), "clGetProgramInfo", where, build_seconds())

    def _compiled(self, kernel: Kernel, where: str) -> Handle:
        made = self._build(kernel.source, kernel, where)
        self.from_source += 1
        return made

    def _sealed(self, key: str, kernel: Kernel, where: str) -> Handle | None:
        """The program out of a seal; None where no seal has it, or where the driver no longer takes it."""
        data = next((data for store in self._stores if (data := store.program(key)) is not None), None)
        if data is None:
            return None
        try:
            made = self._build(data, kernel, where)
        except Unavailable:
            raise
        except BackendError:
            return None
        self.from_seal += 1
        return made

    def _build(self, source: str | bytes, kernel: Kernel, where: str) -> Handle:
        options = " ".join((*kernel.options, "-w"))  # drivers write warnings to stderr
        return driver(
            lambda: native().program(self._context, self._device, source, options, where),
            f"clBuildProgram({kernel.entry})", where, build_seconds(),
        )  # fmt: skip
