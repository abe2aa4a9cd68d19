# SPDX-License-Identifier: Apache-2.0
"""The table in the kernel: owners of table slots and instances' addresses in; they are what the programs read at once.

Two buffers and a generation, mapped, as ROUTING.md section 4 says; a buffer is filled again only after a grace period
of RCU, because a program cannot look again. It decides nothing, and reads no published table.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import time
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from dpfedge.errors import Unavailable, UsageError
from dpfedge.routing.kernel.addresses import Address
from dpfedge.routing.kernel.libbpf import Loaded
from dpfedge.routing.key import BITS, BITS_MAX

__all__ = ["INSTANCES_MAX", "KernelTable", "spread", "table_form"]

INSTANCES_MAX = 1024
"""Instances that the kernel's maps have room for."""

_KNOWN, _INSTANCE, _HASH_BITS = 20, 8, 64
_MEMBARRIER = {"x86_64": 324, "aarch64": 283, "riscv64": 283}
_GLOBAL = 1  # MEMBARRIER_CMD_GLOBAL: returns after a grace period of RCU
_REST_S = 1.0
_ORDERED = platform.machine() == "x86_64"  # whose stores are seen in the order in which they were made


class _Form(TypedDict):
    value_sizes: dict[str, int]
    constants: dict[str, bytes]


def table_form(bits: int) -> _Form:
    """What makes a loaded object's table one of 2**bits slots: `Loaded`'s arguments."""
    if not BITS <= bits <= BITS_MAX:
        raise UsageError("the kernel's table has no such size", where="bits", found=bits, allowed=f"{BITS}..{BITS_MAX}")
    shift = _HASH_BITS - bits
    return {"value_sizes": {"rh_table": 2 << bits}, "constants": {".rodata.rh_shift": shift.to_bytes(4, "little")}}


def spread(owners: bytes, bits: int, wide: int) -> bytes:
    """The owners of 2**bits table slots as those of 2**wide: every key keeps its owner.

    UsageError for a table of more slots, which the kernel has no room for.
    """
    if bits > wide:
        raise UsageError(
            "the kernel's table has fewer slots", where="bits", found=bits, allowed=f"up to {wide}",
            remedy="attach again, or publish a table of fewer bits",
        )  # fmt: skip
    return owners if bits == wide else np.frombuffer(owners, np.uint16).repeat(1 << (wide - bits)).tobytes()


class _Rows:
    """The addresses of instances as the maps have them: made anew only when the instances are others."""

    def __init__(self, addresses: tuple[Address | None, ...], with_known: bool) -> None:
        self.addresses = addresses
        self.known = frozenset(one.known for one in addresses if one is not None and with_known)
        self.four = b"".join(one.instance if one is not None else bytes(_INSTANCE) for one in addresses)
        self.six = b"".join(one.known if one is not None else bytes(_KNOWN) for one in addresses)


class KernelTable:
    """The maps of a loaded object, written by this process only."""

    def __init__(self, loaded: Loaded, bits: int = BITS, *, known: bool = True) -> None:
        """Map them; at first they hold a table that nobody serves.

        `bits`: as it was loaded with, by `table_form`. `known`: the object has a map of addresses.
        """
        self.bits, self._nbytes = bits, 2 << bits
        self._has_known = known
        self._loaded, self._settled, self._switched = loaded, True, 0.0
        self._known, self._next, self._rows = frozenset[bytes](), frozenset[bytes](), _Rows((), known)
        self._maps: list[mmap.mmap] = []
        try:
            self._table, self._inst, self._inst6, self._gen = (
                self._map(name, nbytes)
                for name, nbytes in (
                    ("rh_table", 2 * self._nbytes), ("rh_inst", 2 * INSTANCES_MAX * _INSTANCE),
                    ("rh_inst6", 2 * INSTANCES_MAX * _KNOWN), (".data.rh_gen", 8),
                )
            )  # fmt: skip
        except OSError as error:
            raise Unavailable("the kernel's table cannot be mapped", found=error.strerror) from error
        self._word = memoryview(self._gen)[:8].cast("Q")
        for buffer in (0, 1):
            self._table[buffer * self._nbytes : (buffer + 1) * self._nbytes] = b"\xff" * self._nbytes

    def _map(self, name: str, nbytes: int) -> mmap.mmap:
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        one = mmap.mmap(self._loaded.map(name), pages)
        self._maps.append(one)
        return one

    @property
    def generation(self) -> int:
        """How often was published."""
        return int(self._word[0])

    def publish(self, owners: bytes | memoryview, addresses: Sequence[Address | None]) -> int:
        """What every connection from now on reads; the new generation.

        `owners`: 2**bits table slots of u16 in the host's byte order, 0xFFFF where nobody serves. `addresses`: of the
        instances, by index; None where the kernel cannot reach one. UsageError when they are too many.
        """
        slots = memoryview(owners).cast("B")
        if slots.nbytes != self._nbytes or len(addresses) > INSTANCES_MAX:
            found = f"{slots.nbytes} bytes, {len(addresses)} instances"
            allowed = f"{self._nbytes} bytes, {INSTANCES_MAX} instances"
            raise UsageError("the table does not fit the kernel's", where="table", found=found, allowed=allowed)
        self.settle()
        if self._rows.addresses != tuple(addresses):
            self._rows = _Rows(tuple(addresses), self._has_known)
        for key in self._rows.known - self._known:
            self._loaded.put("rh_known", key, bytes(4))
        self._known |= self._rows.known
        buffer = (self.generation + 1) & 1
        self._table[buffer * self._nbytes : (buffer + 1) * self._nbytes] = slots
        for where, data, each in ((self._inst, self._rows.four, _INSTANCE), (self._inst6, self._rows.six, _KNOWN)):
            stride = INSTANCES_MAX * each
            where[buffer * stride : (buffer + 1) * stride] = data.ljust(stride, b"\0")
        if not _ORDERED and not _grace():  # a full barrier too: no processor sees the generation before the table
            raise Unavailable("this machine has no way to order the table's stores", found=platform.machine())
        self._word[0] = self.generation + 1
        self._settled, self._switched, self._next = False, time.monotonic(), self._rows.known
        return self.generation

    def settle(self) -> None:
        """Wait until no program reads the buffer that is filled next; at once when that is known."""
        if self._settled:
            return
        if not _grace():
            time.sleep(max(0.0, self._switched + _REST_S - time.monotonic()))
        for key in self._known - self._next:
            self._loaded.drop("rh_known", key)
        self._known, self._settled = self._next, True

    def close(self) -> None:
        """Unmap."""
        self._word.release()
        for one in self._maps:
            one.close()


def _grace() -> bool:
    """One grace period of RCU; False where the kernel offers no way to wait for one."""
    number = _MEMBARRIER.get(platform.machine())
    if number is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), ctypes.c_long(_GLOBAL), ctypes.c_long(0)) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EPERM):  # nohz_full, no such call, a sandbox
        return False
    raise OSError(code, os.strerror(code))
