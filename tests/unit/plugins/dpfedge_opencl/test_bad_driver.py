# SPDX-License-Identifier: Apache-2.0
"""Drivers that fail at each call, hang, crash, lie, or are too old or not there: a named error each time, no crash.

The driver is a stand-in (`standins/opencl.c`) before PoCL, loaded by the real loader and the real pyopencl.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import standin
from made_plans import a_device

MADE = Path(__file__).parent / "made"
ERRORS = (
    "clCreateContext", "clCreateCommandQueue", "clCreateBuffer", "clCreateProgramWithSource", "clBuildProgram",
    "clCreateKernel", "clSetKernelArg", "clEnqueueNDRangeKernel", "clSetEventCallback", "clFlush", "clGetProgramInfo",
)  # fmt: skip
HANGS = (
    "clCreateContext", "clCreateCommandQueue", "clCreateProgramWithSource", "clBuildProgram",
    "clGetProgramInfo",
)  # fmt: skip
"""Calls that are made where a graph is loaded or sealed; a kernel that hangs is `clSetEventCallback=silent`."""
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def pyopencl_without_drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed pyopencl without the driver that lies beside it: a folder for PYTHONPATH."""
    a_device()
    spec = importlib.util.find_spec("pyopencl")
    assert spec is not None
    assert spec.origin is not None
    source, folder = Path(spec.origin).parent, tmp_path_factory.mktemp("pyopencl")
    (folder / "pyopencl" / ".libs").mkdir(parents=True)
    for path in (*source.iterdir(), *(source / ".libs").iterdir()):
        if path.name != ".libs" and path.suffix != ".icd":
            (folder / path.relative_to(source.parent)).symlink_to(path)
    return folder


@pytest.fixture
def run(pyopencl_without_drivers: Path, tmp_path: Path) -> Run:
    """Ways to fail → what came of each; `without` leaves functions out, `vendor` is what the .icd file names."""

    def _run(
        *told: str, without: tuple[str, ...] = (), vendor: str | None = None, **environment: str
    ) -> dict[str, Any]:
        vendors = tmp_path / "vendors"
        vendors.mkdir(exist_ok=True)
        for old in vendors.iterdir():
            old.unlink()
        if vendor != "":
            library = standin.build("opencl.c", "libOpenCL-standin.so", *without) / "libOpenCL-standin.so"
            (vendors / "standin.icd").write_text(f"{vendor or library}\n")
        spec = importlib.util.find_spec("pyopencl")
        assert spec is not None
        assert spec.origin is not None
        real = next((Path(spec.origin).parent / ".libs").glob("libpocl*"), None)
        if real is None:
            pytest.skip("PoCL does not lie beside pyopencl")
        paths = [str(pyopencl_without_drivers), str(MADE)]
        outer = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OCL_ICD_VENDORS": str(vendors)}
        outer |= {"STANDIN_REAL": str(real), "DPFEDGE_OPENCL_HANG_S": "30", "STANDIN": ""} | environment
        program = [sys.executable, str(MADE / "bad_driver.py"), *told]
        done = subprocess.run(program, env=outer, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return dict(json.loads(done.stdout))

    return _run


def test_driver__fails_at_each_call(run: Run) -> None:
    """Each error is named with the call and the code; the process goes on and works afterwards."""
    found = run("", *(f"{call}=-5" for call in ERRORS), "clCreateBuffer=-4@3", "clSetEventCallback=failed", "")
    assert found[""]["memory"] == "use_host_ptr"
    for call in ERRORS:
        assert isinstance(found[f"{call}=-5"], list), call
        kind, text = found[f"{call}=-5"]
        assert kind == "BackendError", call
        assert "OUT_OF_RESOURCES (-5)" in text, text
    assert "MEM_OBJECT_ALLOCATION_FAILURE" in found["clCreateBuffer=-4@3"][1]
    assert "a kernel failed on the device" in found["clSetEventCallback=failed"][1]


def test_driver__hangs_where_kernels_are_made_ready_and_launched(run: Run) -> None:
    """With memory that needs no probe: the calls of a first run, each within the bound of compiling."""
    calls = ("clCreateKernel", "clSetKernelArg", "clEnqueueNDRangeKernel", "clFlush")
    found = run(*(f"{call}=hang" for call in calls), DPFEDGE_OPENCL_MEMORY="use_host_ptr")
    for call in calls:
        kind, text = found[f"{call}=hang"]
        assert (kind, "does not answer" in text) == ("Unavailable", True), text
        assert "graph g" in text


def test_driver__hangs(run: Run) -> None:
    """A call that never comes back, and a kernel that never ends, are errors within the bound."""
    found = run(*(f"{call}=hang" for call in HANGS), "clSetEventCallback=silent")
    for call in HANGS:
        kind, text = found[f"{call}=hang"]
        name = "clBuildProgram" if call == "clCreateProgramWithSource" else call
        assert (kind, "does not answer" in text, name in text) == ("Unavailable", True, True), text
    kind, text = found["clSetEventCallback=silent"]
    assert kind == "Unavailable"
    assert "does not come back" in text
    assert "x to t0" in text


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"STANDIN": "clGetDeviceInfo=crash"}, "signal 11"),
        ({"STANDIN": "clGetDeviceIDs=hang", "DPFEDGE_OPENCL_HANG_S": "1"}, "does not come back"),
        ({"STANDIN": "clGetDeviceIDs=-6"}, "OUT_OF_HOST_MEMORY from clGetDeviceIDs"),
        ({"STANDIN": "clIcdGetPlatformIDsKHR=-6"}, "there is no OpenCL driver"),
        ({"STANDIN_VERSION": "OpenCL 1.1 an old driver"}, "kernels need 1.2"),
        ({"vendor": ""}, "there is no OpenCL driver; found no .icd file"),
        ({"vendor": "libno-such-driver.so"}, "there is no OpenCL driver; found standin.icd"),
    ],
)
def test_listing__ends_with_a_reason(run: Run, environment: dict[str, str], words: str) -> None:
    """What is wrong with a driver shows where devices are listed: in a process that may die."""
    told = environment.pop("STANDIN", "")
    (found,) = run(told, **environment).values()
    assert found[0] == "Unavailable"
    assert words in found[1]


def test_listing__library_that_lacks_a_function(run: Run) -> None:
    """An old library crashes whoever calls what it lacks: the child, not us."""
    (found,) = run("", without=("clGetDeviceIDs",)).values()
    assert found[0] == "Unavailable"


GPU = {"STANDIN_TYPE": "4", "STANDIN_VERSION": "OpenCL 2.1 v1.g6p0-01eac0", "STANDIN_NAME": "Mali-LODX r0p0"}
EXTENSIONS = "cl_khr_fp16 cl_arm_integer_dot_product_int8"


def test_mali__memory_is_imported(run: Run) -> None:
    """What RK3588's driver says, its odd name included; the caller's pages are imported whole, nothing is copied."""
    told = f"{EXTENSIONS} cl_arm_import_memory cl_arm_import_memory_host"
    (found,) = run("", **GPU, STANDIN_EXTENSIONS=told).values()
    assert found["device"][:3] == ["gpu.arm", "mali-g610", "Mali-LODX r0p0"]
    assert {"fp16", "int8_dot"} <= set(found["device"][3])
    assert (found["memory"], found["copied"]) == ("import", 0)


def test_priorities__are_asked_of_a_driver_that_has_them(run: Run) -> None:
    """cl_khr_priority_hints: queues are made by the call that takes a level; without it by the older one."""
    told, plain = "clCreateCommandQueueWithProperties=-5", "clCreateCommandQueue=-5"
    found = run(told, plain, **GPU, STANDIN_EXTENSIONS=f"{EXTENSIONS} cl_khr_priority_hints")
    assert "OUT_OF_RESOURCES" in found[told][1]
    (found,) = run(told, **GPU, STANDIN_EXTENSIONS=EXTENSIONS).values()
    assert found["device"][0] == "gpu.arm"


def test_mali__driver_that_copies_is_found_out(run: Run) -> None:
    """Pointers of ours that the driver copies behind our back are not used; its own memory is, and copies count."""
    (found,) = run("", **GPU, STANDIN_EXTENSIONS=EXTENSIONS, STANDIN_COPIES="1").values()
    assert found["memory"] == "alloc_host_ptr"
    assert found["copied"] > 0


def test_mali__import_that_fails_is_no_error(run: Run) -> None:
    """A driver that lists the extension and refuses our pages is asked for the next way."""
    told = "clImportMemoryARM=-34"
    (found,) = run(told, **GPU, STANDIN_EXTENSIONS=f"{EXTENSIONS} cl_arm_import_memory").values()
    assert found["memory"] == "use_host_ptr"
