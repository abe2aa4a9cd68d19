# SPDX-License-Identifier: Apache-2.0
"""Plain calls into the library: what it lists, what it lacks, handles that are released once."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
from dpfedge_opencl.native import Handle, Native, native
from made_plans import a_device

from dpfedge.errors import Unavailable


def test_devices__are_those_that_were_listed() -> None:
    """The same number and names as the child process tells."""
    device, library = a_device(), native()
    listed = library.devices()
    index = int(device.id.rpartition(":")[2])
    assert library.text("clGetDeviceInfo", listed[index][1], 0x102B) == device.name
    assert library.number(listed[index][1], 0x1002) >= 1


def test_native__names_what_the_library_lacks() -> None:
    """An old library: the first function that is missing."""
    empty: Any = SimpleNamespace()
    with pytest.raises(Unavailable, match="lacks a function"):
        Native(empty)
    with pytest.raises(AttributeError):
        _ = native().clNothing


def test_handle__is_released_where_it_ends() -> None:
    """Once, with its value."""
    released: list[int] = []
    handle = Handle(7, lambda value: released.append(value) or 0)  # type: ignore[func-returns-value]
    assert released == []
    del handle
    assert released == [7]


def test_extension__that_is_not_there() -> None:
    """0, as the library says."""
    a_device()
    assert native().extension(native().devices()[0][0], "clNoSuchFunction") == 0
    assert ctypes.sizeof(ctypes.c_void_p) == 8
