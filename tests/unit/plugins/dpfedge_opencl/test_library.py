# SPDX-License-Identifier: Apache-2.0
"""Errors by name and bounds on calls."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from dpfedge_opencl.library import build_seconds, check, driver, hang_seconds, spare_cache

from dpfedge.errors import BackendError, Unavailable


def test_check__names_the_code() -> None:
    """0 is well; a driver without devices or compiler is unavailable, the rest are errors."""
    check(0, "clFlush", "device d")
    with pytest.raises(BackendError, match=r"device d: clFlush failed; found OUT_OF_RESOURCES \(-5\)") as caught:
        check(-5, "clFlush", "device d")
    assert not isinstance(caught.value, Unavailable)
    with pytest.raises(Unavailable, match="COMPILER_NOT_AVAILABLE"):
        check(-3, "clBuildProgram", "device d")


def test_driver__ends_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer, an error, or the call's name once the bound has passed."""
    assert driver(lambda: 7, "clFinish", "device d") == 7
    with pytest.raises(BackendError, match="INVALID_VALUE"):
        driver(lambda: check(-30, "clFinish", "device d"), "clFinish", "device d")
    monkeypatch.setenv("DPFEDGE_OPENCL_HANG_S", "0.05")
    with pytest.raises(Unavailable, match="device d: clFinish: the library does not answer"):
        driver(lambda: time.sleep(2), "clFinish", "device d")


@pytest.mark.parametrize(("text", "seconds"), [("0.5", 0.5), ("nonsense", 30.0), ("-1", 0.01)])
def test_bound__is_of_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    """Compiling may take twenty times as long."""
    monkeypatch.setenv("DPFEDGE_OPENCL_HANG_S", text)
    assert hang_seconds() == seconds
    assert build_seconds() == 20 * seconds


def test_spare_cache__is_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of this user's alone, and only where the environment names none."""
    monkeypatch.setenv("POCL_CACHE_DIR", "/chosen")
    spare_cache()
    assert os.environ["POCL_CACHE_DIR"] == "/chosen"
    monkeypatch.delenv("POCL_CACHE_DIR")
    spare_cache()
    if (found := os.environ.pop("POCL_CACHE_DIR", None)) is not None:
        status = Path(found).lstat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.getuid(), 0o700)
