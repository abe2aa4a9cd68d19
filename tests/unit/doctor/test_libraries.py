# SPDX-License-Identifier: Apache-2.0
"""Providers that are listed and cannot be loaded; the library is a fake: our own, wanting one that is nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge import _core
from dpfedge.doctor import libraries
from dpfedge.doctor.libraries import check_providers, load_error
from dpfedge.doctor.surroundings import Surroundings
from dpfedge.hardware.source.root import Root

from .conftest import Install, machine

CUDA = "onnxruntime/capi/libonnxruntime_providers_cuda.so"


def wanting(place: Path, name: bytes = b"libx.so.6") -> Path:
    """A library that needs `name` instead of the C library."""
    data = Path(_core.__file__).read_bytes()
    assert b"libc.so.6" in data
    place.write_bytes(data.replace(b"libc.so.6", name))
    return place


def test_load_error__names_what_is_missing(tmp_path: Path) -> None:
    """As the loader says it; nothing is said of a library that loads."""
    broken = wanting(tmp_path / "broken.so")

    assert "libx.so.6: cannot open shared object file" in load_error(tmp_path / "none.so", broken)
    assert load_error(tmp_path / "none.so", Path(_core.__file__)) == ""


def test_load_error__of_what_hangs_or_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child ends; this process does not."""
    monkeypatch.setattr(libraries, "_TIMEOUT_S", 0.2)
    monkeypatch.setattr(libraries, "_CODE", "import time; time.sleep(60)")
    assert load_error(tmp_path, tmp_path) == "loading it takes more than 0.2 s"
    monkeypatch.setattr(libraries, "_TIMEOUT_S", 20.0)
    monkeypatch.setattr(libraries, "_CODE", "import os; os.abort()")
    assert load_error(tmp_path, tmp_path) == "loading it ends the process by signal 6"


def test_check_providers__listed_without_its_libraries(install: Install) -> None:
    """onnxruntime would list it and run on the CPU."""
    folder = install("onnxruntime-gpu", "1.31.1", files=["onnxruntime/__init__.py", CUDA])
    wanting(Path(folder, CUDA))

    (found,) = check_providers(Surroundings(Root("/"), {}, (folder,)))

    assert found.level == "fault"
    assert found.what == "CUDAExecutionProvider is listed and cannot be loaded: libx.so.6 is missing"
    assert found.remedy == "pip install 'onnxruntime-gpu[cuda,cudnn]'"


def test_check_providers__of_a_recording(install: Install) -> None:
    """What another machine's loader would find is not known here."""
    folder = install("onnxruntime-gpu", "1.31.1", files=["onnxruntime/__init__.py", CUDA])

    assert list(check_providers(machine("h100", folder))) == []
