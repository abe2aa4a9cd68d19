# SPDX-License-Identifier: Apache-2.0
"""Devices in use: one runtime each, none over a fork, none where the drivers list others than before."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from dpfedge_opencl.runtime import _LEVELS, native_device, open_runtime
from made_plans import a_device, runtime

from dpfedge.errors import BackendError, Unavailable


def test_open__is_one_per_device() -> None:
    """By the device or by its id; what operators choose by comes from the device."""
    device, here = a_device(), runtime()
    assert open_runtime(device.id) is here
    assert here.facts.arch == device.arch
    assert here.facts.compute_units >= 1
    with pytest.raises(Unavailable, match="no such OpenCL device"):
        open_runtime("opencl:99")


def test_native_device__is_the_one_that_was_bound() -> None:
    """Another device in its place, or none, is an error that says to bind again."""
    device = a_device()
    for wrong in (replace(device, name="Mali-G610 r0p0"), replace(device, id="opencl:99")):
        with pytest.raises(Unavailable, match="bind again"):
            native_device(wrong)


def test_queue__level_of_each_urgency() -> None:
    """Eight urgencies fold into the three levels of cl_khr_priority_hints; each is some level."""
    assert [next(level for most, level in _LEVELS if urgency <= most) for urgency in range(8)] == [
        1, 1, 2, 2, 2, 4, 4, 4,
    ]  # fmt: skip
    assert runtime().queue(7).value


def test_fork__child_is_told() -> None:
    """A context made before the fork is refused in the child, where the driver would hang."""
    here = runtime()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            here.check_process()
            os.write(write, b"no error")
        except BackendError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"does not survive a fork" in os.read(read, 1000)
    os.close(read)
    os.close(write)
    here.check_process()
