# SPDX-License-Identifier: Apache-2.0
"""libbpf, as far as routing needs it: an object's bytes in; programs, maps and links as file descriptors out.

Everything ends with its descriptor: nothing is pinned, so nothing is left when a process dies. It knows no program by
name and asks for no privilege.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dpfedge.errors import Unavailable

__all__ = ["CGROUP_TYPES", "Loaded", "Program", "attach_to_map", "library", "link", "loaded_programs"]

_NAMES = ("libbpf.so.1", "libbpf.so.0")
_LOG_MAX_BYTES = 1 << 20  # of the verifier's account, of which the end is told
_TOLD_LINES = 8
_INFO_BYTES, _NAME_AT = 80, 64  # of struct bpf_prog_info

CGROUP_TYPES = {
    "device": (15, 6), "connect4": (18, 10), "connect6": (18, 11), "sendmsg4": (18, 14), "sendmsg6": (18, 15),
    "recvmsg4": (18, 19), "recvmsg6": (18, 20), "setsockopt": (25, 22), "sock_ops": (13, 3),
}  # fmt: skip
"""What attaches to a cgroup: program type and attach type, as <linux/bpf.h> numbers them."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of an object, and what it is: numbers of <linux/bpf.h>."""

    name: str
    type: int
    attach: int


_Printer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_said: list[str] = []


def _print(level: int, form: bytes, arguments: int) -> int:
    # the arguments are a va_list, which only C can read: libc formats it
    if level <= 1:
        line = ctypes.create_string_buffer(_LOG_MAX_BYTES)
        ctypes.CDLL(None).vsnprintf(line, ctypes.c_size_t(len(line)), form, ctypes.c_void_p(arguments))
        _said.append(line.value.decode(errors="replace").strip())
        del _said[:-_TOLD_LINES]
    return 0


_printer = _Printer(_print)  # libbpf keeps it


@functools.cache
def library() -> ctypes.CDLL:
    """libbpf; Unavailable where it is not installed."""
    for name in _NAMES:
        try:
            found = ctypes.CDLL(name, use_errno=True)
            _declare(found)
        except (OSError, AttributeError):
            continue  # not here, or so old that it lacks a call
        return found
    raise Unavailable("libbpf is not installed", found=f"no usable {' or '.join(_NAMES)}", remedy="install libbpf1")


def _declare(lib: ctypes.CDLL) -> None:
    pointer, text, integer, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    signatures: dict[str, tuple[Any, Sequence[Any]]] = {
        "bpf_object__open_mem": (pointer, (text, size, pointer)),
        "bpf_object__load": (integer, (pointer,)),
        "bpf_object__close": (None, (pointer,)),
        "bpf_object__find_program_by_name": (pointer, (pointer, text)),
        "bpf_object__find_map_by_name": (pointer, (pointer, text)),
        "bpf_program__set_autoload": (integer, (pointer, ctypes.c_bool)),
        "bpf_program__set_type": (integer, (pointer, integer)),
        "bpf_program__set_expected_attach_type": (integer, (pointer, integer)),
        "bpf_program__fd": (integer, (pointer,)),
        "bpf_map__fd": (integer, (pointer,)),
        "bpf_map__set_value_size": (integer, (pointer, ctypes.c_uint32)),
        "bpf_map__set_initial_value": (integer, (pointer, text, size)),
        "bpf_map_update_elem": (integer, (integer, text, text, ctypes.c_uint64)),
        "bpf_map_lookup_elem": (integer, (integer, text, text)),
        "bpf_map_delete_elem": (integer, (integer, text)),
        "bpf_map_get_next_key": (integer, (integer, pointer, text)),
        "bpf_link_create": (integer, (integer, integer, integer, pointer)),
        "bpf_prog_attach": (integer, (integer, integer, integer, ctypes.c_uint)),
        "bpf_prog_get_next_id": (integer, (ctypes.c_uint32, pointer)),
        "bpf_prog_get_fd_by_id": (integer, (ctypes.c_uint32,)),
        "bpf_obj_get_info_by_fd": (integer, (integer, text, pointer)),
        "libbpf_get_error": (ctypes.c_long, (pointer,)),
        "libbpf_num_possible_cpus": (integer, ()),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    lib.libbpf_set_print.restype = pointer
    lib.libbpf_set_print(_printer)


def _unavailable(what: str, code: int) -> Unavailable:
    lines = [line for text in _said for line in text.splitlines() if line.strip()]
    _said.clear()
    told = f" ({' | '.join(lines[-_TOLD_LINES:])})" if lines and code != errno.EPERM else ""
    remedy = "CAP_BPF and CAP_NET_ADMIN are needed" if code == errno.EPERM else None
    return Unavailable(what, found=os.strerror(code) + told, remedy=remedy)


class Loaded:
    """A loaded object: its programs and maps; `close`, or the end of the process, unloads what nothing else holds."""

    def __init__(
        self, data: bytes, programs: Iterable[Program], unused: Iterable[str] = (), *,
        value_sizes: Mapping[str, int] | None = None, constants: Mapping[str, bytes] | None = None,
    ) -> None:  # fmt: skip
        """Load `programs`, and not `unused`, of an object's bytes; Unavailable says why the kernel would not.

        `value_sizes`: of maps whose values are larger than the object says, bytes. `constants`: what the sections
        `.rodata.NAME` hold, which the kernel takes as known.
        """
        lib, self._data = library(), data
        _said.clear()
        self._object: int | None = lib.bpf_object__open_mem(data, len(data), None)
        if failed := lib.libbpf_get_error(self._object):
            self._object = None
            raise _unavailable("the eBPF object cannot be read", -failed)
        try:
            for name in unused:
                lib.bpf_program__set_autoload(self._program(name), False)
            for one in programs:
                handle = self._program(one.name)
                lib.bpf_program__set_type(handle, one.type)
                lib.bpf_program__set_expected_attach_type(handle, one.attach)
            for name, nbytes in (value_sizes or {}).items():
                _check(lib.bpf_map__set_value_size(self._map(name), nbytes))
            for name, value in (constants or {}).items():
                _check(lib.bpf_map__set_initial_value(self._map(name), value, len(value)))
            if failed := lib.bpf_object__load(self._object):
                raise _unavailable("the kernel does not load the programs", -failed)
        except BaseException:
            self.close()
            raise

    def _opened(self) -> int:
        if self._object is None:
            raise Unavailable("the eBPF object is closed")
        return int(self._object)

    def _program(self, name: str) -> int:
        handle = library().bpf_object__find_program_by_name(self._opened(), name.encode())
        if not handle:
            raise Unavailable("the eBPF object has no such program", found=name, remedy="run `make bpf`")
        return int(handle)

    def program(self, name: str) -> int:
        """The descriptor of a program."""
        return int(library().bpf_program__fd(self._program(name)))

    def _map(self, name: str) -> int:
        handle = library().bpf_object__find_map_by_name(self._opened(), name.encode())
        if not handle:
            raise Unavailable("the eBPF object has no such map", found=name, remedy="run `make bpf`")
        return int(handle)

    def map(self, name: str) -> int:
        """The descriptor of a map; a section of data, such as `.data.NAME`, is a map of one element."""
        return int(library().bpf_map__fd(self._map(name)))

    def put(self, name: str, key: bytes, value: bytes) -> None:
        """Set an element of a map; OSError as the kernel says."""
        _check(library().bpf_map_update_elem(self.map(name), key, value, 0))

    def get(self, name: str, key: bytes, nbytes: int) -> bytes | None:
        """An element of a map of values of `nbytes`; None where there is none."""
        value = ctypes.create_string_buffer(nbytes)
        try:
            _check(library().bpf_map_lookup_elem(self.map(name), key, value))
        except FileNotFoundError:
            return None
        return value.raw

    def drop(self, name: str, key: bytes) -> None:
        """Remove an element of a map, if it is there."""
        try:
            _check(library().bpf_map_delete_elem(self.map(name), key))
        except FileNotFoundError:
            return

    def keys(self, name: str, nbytes: int, most: int) -> list[bytes]:
        """The keys of a map, up to `most` of them: it may change meanwhile."""
        found: list[bytes] = []
        key = ctypes.create_string_buffer(nbytes)
        while len(found) < most:
            try:
                _check(library().bpf_map_get_next_key(self.map(name), found[-1] if found else None, key))
            except FileNotFoundError:
                break
            found.append(key.raw)
        return found

    def per_cpu(self, name: str, key: bytes, words: int) -> list[int]:
        """The sums over all processors of an element of 64-bit words."""
        cpus = int(library().libbpf_num_possible_cpus())
        value = self.get(name, key, cpus * words * 8) or bytes(cpus * words * 8)
        cells = memoryview(value).cast("Q")
        return [sum(cells[word::words]) for word in range(words)]

    def close(self) -> None:
        """Unload; links that were made of its programs keep them until they are closed too."""
        if self._object is not None:
            library().bpf_object__close(self._object)
            self._object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _check(result: int) -> int:
    """The result, or the OSError of it: both of libbpf's ways to tell."""
    if result < 0:
        code = ctypes.get_errno() or -result
        raise OSError(code, os.strerror(code))
    return result


def link(program: int, target: int, attach: int, what: str) -> int:
    """Attach a program to a cgroup or network namespace; the link's descriptor. Unavailable says what refused it."""
    fd = int(library().bpf_link_create(program, target, attach, None))
    if fd < 0:
        raise _unavailable(f"{what} cannot be attached", ctypes.get_errno() or -fd)
    os.set_inheritable(fd, False)
    return fd


def loaded_programs() -> list[str]:
    """The names of all programs in the kernel: what is left behind is seen here. It needs CAP_SYS_ADMIN; else none."""
    names, number = list[str](), ctypes.c_uint32(0)
    while library().bpf_prog_get_next_id(number, ctypes.byref(number)) == 0:
        fd = int(library().bpf_prog_get_fd_by_id(number))
        if fd < 0:
            continue  # it ended meanwhile
        info, size = ctypes.create_string_buffer(_INFO_BYTES), ctypes.c_uint32(_INFO_BYTES)
        known = library().bpf_obj_get_info_by_fd(fd, info, ctypes.byref(size)) == 0
        os.close(fd)
        if known:
            names.append(info.raw[_NAME_AT : _NAME_AT + 16].split(b"\0")[0].decode())
    return names


def attach_to_map(program: int, target: int, attach: int, what: str) -> None:
    """Attach a program to a map of sockets, for as long as that lives."""
    result = int(library().bpf_prog_attach(program, target, attach, 0))
    if result < 0:
        raise _unavailable(f"{what} cannot be attached", ctypes.get_errno() or -result)
