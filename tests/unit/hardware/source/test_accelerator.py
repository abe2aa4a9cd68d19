# SPDX-License-Identifier: Apache-2.0
"""The kernel's version, which is that of the drivers it brings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpfedge.hardware.source.accelerator import kernel_release, kernel_version
from dpfedge.hardware.source.root import Root


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("6.8.0-60-generic", "6.8.0"), ("5.15.148-tegra", "5.15.148"), ("6.1.75-vendor-rk35xx", "6.1.75"),
        ("6.18-rc3", "6.18"), ("unknown", None), ("", None), ("6", None), ("6.8.0.1.2", "6.8.0.1"),
    ],
)  # fmt: skip
def test_kernel_version__is_the_numbers_at_the_start(release: str, version: str | None) -> None:
    """A vendor's suffix says nothing about order."""
    assert kernel_version(release) == version


def test_kernel_release__of_a_recording_and_of_here(tmp_path: Path) -> None:
    """A recording that does not tell is not this machine."""
    assert kernel_release(Root(tmp_path)) == "unknown"
    assert kernel_release(Root()) == os.uname().release
