# SPDX-License-Identifier: Apache-2.0
"""Providers that are listed and cannot be loaded; the library is a fake: our own, wanting one that is nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge import _core
from dpfedge.doctor.libraries import check_lacking, check_providers
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


def test_check_providers__listed_without_its_libraries(install: Install) -> None:
    """onnxruntime would list it and run on the CPU."""
    folder = install("onnxruntime-gpu", "1.31.1", files=["onnxruntime/__init__.py", CUDA])
    wanting(Path(folder, CUDA))

    (found,) = check_providers(Surroundings(Root("/"), {}, (folder,)))

    assert found.level == "fault"
    assert found.what == "CUDAExecutionProvider is listed and cannot be loaded: libx.so.6 is missing"
    assert found.remedy == "pip install 'onnxruntime-gpu[cuda,cudnn]'"


@pytest.mark.parametrize(
    ("kind", "library", "level", "remedy"),
    [
        ("cuda", "libcuda.so.1", "fault", "install the NVIDIA driver; in a container: run it with --gpus all"),
        ("tensorrt", "libnvinfer.so.10", "note", "install TensorRT 10, if it is to be used"),
        ("migraphx", "libmigraphx_c.so.3", "fault", "install its vendor's libraries"),
    ],
)
def test_check_providers__what_to_install(
    install: Install, monkeypatch: pytest.MonkeyPatch, kind: str, library: str, level: str, remedy: str
) -> None:
    """The driver is no package of Python's; TensorRT need not be there."""
    file = f"onnxruntime/capi/libonnxruntime_providers_{kind}.so"
    folder = install("onnxruntime-gpu", "1.31.1", files=["onnxruntime/__init__.py", file])
    said = f"OSError: {library}: cannot open shared object file: No such file or directory"
    monkeypatch.setattr("dpfedge.doctor.libraries.load_error", lambda files, folders: said)

    (found,) = check_providers(Surroundings(Root("/"), {}, (folder,)))

    assert (found.level, found.remedy) == (level, remedy)
    assert f"{library} is missing" in found.what


@pytest.mark.parametrize(
    ("name", "wanted", "kind", "words"),
    [
        (
            "h100",
            "cuda",
            "cuda",
            "CUDAExecutionProvider is not in it, and backend cuda loads nothing without",
        ),
        ("orin-agx", "jetson", "cuda", "CUDAExecutionProvider is not in it"),
        ("mi300x", "rocm", "migraphx", "MIGraphXExecutionProvider is not in it, and backend rocm loads nothing"),
    ],
)
def test_check_lacking__the_build_for_cpus(install: Install, name: str, wanted: str, kind: str, words: str) -> None:
    """A GPU, its backend, and the onnxruntime that everybody gets: named, with what to install instead."""
    folder = install("onnxruntime", "1.32.0")

    (found,) = check_lacking(machine(name, folder), {"cpu", wanted})

    assert (found.level, found.where) == ("fault", "onnxruntime 1.32.0")
    assert found.what.startswith(words)
    assert found.remedy.startswith("pip uninstall -y onnxruntime, then pip install")
    assert list(check_lacking(machine(name, folder), {"cpu"})) == []
    assert list(check_lacking(machine("rk3588", folder), {wanted})) == []
    Path(folder, "onnxruntime/capi").mkdir()
    Path(folder, f"onnxruntime/capi/libonnxruntime_providers_{kind}.so").touch()
    assert list(check_lacking(machine(name, folder), {wanted})) == []


def test_check_providers__of_a_recording(install: Install) -> None:
    """What another machine's loader would find is not known here."""
    folder = install("onnxruntime-gpu", "1.31.1", files=["onnxruntime/__init__.py", CUDA])

    assert list(check_providers(machine("h100", folder))) == []
