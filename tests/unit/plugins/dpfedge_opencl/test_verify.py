# SPDX-License-Identifier: Apache-2.0
"""What is looked at on a device, looked at on whatever OpenCL shows here."""

from __future__ import annotations

from dpfedge_opencl import OpenClBackend
from dpfedge_opencl.verify import checks
from made_plans import a_device, runtime


def test_checks__hold_here() -> None:
    """Each is named, and says what was found."""
    found = dict(checks(OpenClBackend(), a_device()))
    assert ("16-bit floats in kernels" in found) == runtime().facts.fp16
    assert runtime().memory.name in found["memory shared with the device"]
    assert "to the bit" in found["programs out of a seal"]
