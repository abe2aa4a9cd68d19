# SPDX-License-Identifier: Apache-2.0
"""Programs: built once, out of a seal where it has them, from source where a seal is of no use."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dpfedge_opencl.plan import Kernel
from dpfedge_opencl.programs import Programs
from dpfedge_opencl.sealed import Store, read, write
from made_plans import AFFINE, runtime

from dpfedge.errors import BackendError


def _programs() -> Programs:
    here = runtime()
    return Programs(here.context, here.device.handle, here.device.identity)


def test_handle__builds_once() -> None:
    """The same source and options are one program; another option is another."""
    made = _programs()
    first = made.handle(AFFINE, "g")
    assert made.handle(Kernel("affine", AFFINE.source), "g") == first
    assert made.handle(replace(AFFINE, options=("-DX=1",)), "g") != first
    assert (made.from_source, made.from_seal) == (2, 0)


def test_handle__error_says_what_the_compiler_said() -> None:
    """The kernel's name, the driver's code and its log."""
    with pytest.raises(BackendError, match=r"clBuildProgram failed: .*error.*BUILD_PROGRAM_FAILURE"):
        _programs().handle(Kernel("broken", "__kernel void broken( { nonsense"), "graph g")


def test_seal__spares_the_compiler() -> None:
    """Binaries of one context serve another one; those of another identity do not."""
    made = _programs()
    with made.used() as keys:
        made.handle(AFFINE, "g")
    store = read(memoryview(write(made.binaries(keys, "g"), {})), "g")

    again = _programs()
    again.add(store)
    again.handle(AFFINE, "g")
    assert (again.from_source, again.from_seal) == (0, 1)

    here = runtime()
    other = Programs(here.context, here.device.handle, "another driver")
    other.add(store)
    other.handle(AFFINE, "g")
    assert (other.from_source, other.from_seal) == (1, 0)


def test_seal__that_the_driver_refuses_is_passed_over() -> None:
    """Whole bytes of something else, with a right digest: the source is built."""
    made = _programs()
    with made.used() as keys:
        made.handle(AFFINE, "g")
    again = _programs()
    store = Store(read(memoryview(write(dict.fromkeys(keys, b"no program"), {})), "g")._programs, {}, None, None)
    again.add(store)
    again.handle(AFFINE, "g")
    assert again.from_source == 1
    again.remove(store)
