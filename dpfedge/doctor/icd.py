# SPDX-License-Identifier: Apache-2.0
"""OpenCL's drivers: a root in; a missing loader, no ICD file, or ICD files whose library is not there, out.

No library is loaded: an ICD of a driver without its device may hang or print.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpfedge.doctor.surroundings import Finding, Surroundings
from dpfedge.hardware.source.root import Root, label

__all__ = ["check_icd"]

_VENDORS = "etc/OpenCL/vendors"
_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")
_FOLDERS = (
    "usr/lib", "usr/lib64", "lib", "lib64", "usr/local/lib", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
    "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "opt/rocm/lib", "vendor/lib64", "system/vendor/lib64",
)  # fmt: skip
_DRIVERS = (
    "libmali.so",
    "libmali.so.1",
    "libPVROCL.so",
    "libOpenCL_adreno.so",
    "libamdocl64.so",
    "libnvidia-opencl.so.1",
)
_BACKENDS = ("opencl",)


def check_icd(surroundings: Surroundings) -> Iterator[Finding]:
    """What keeps the loader from finding a platform; a recording without libraries tells nothing of that."""
    root = surroundings.root
    if not root.live and not any(root.has(folder) for folder in (_VENDORS, *_FOLDERS)):
        return
    if not any(_library(root, name) for name in ("libOpenCL.so.1", "libOpenCL.so")) and not _bundled(surroundings):
        remedy = "apt install ocl-icd-libopencl1"
        yield Finding("icd", "fault", "libOpenCL.so.1", "the OpenCL loader is not installed", remedy, _BACKENDS)
    if named := [name for name in _VARIABLES if surroundings.environ.get(name)]:
        what = f"the loader takes drivers from {surroundings.environ[named[0]]} instead of /{_VENDORS}"
        yield Finding("icd", "note", named[0], what, "", _BACKENDS)
        return
    files = [name for name in root.names(_VENDORS) if name.endswith(".icd")]
    if not files:
        driver = next((name for name in _DRIVERS if _library(root, name)), None)
        remedy = f"write {driver} into /{_VENDORS}/{driver[3:].partition('.')[0]}.icd" if driver else "install a driver"
        yield Finding("icd", "fault", f"/{_VENDORS}", "no driver is registered (no .icd file)", remedy, _BACKENDS)
    for name in files:
        library = label(root.text(f"{_VENDORS}/{name}") or "")
        if not library or not _library(root, library):
            what = f"it names {library}, which is not there" if library else "it is empty, or may not be read"
            remedy = "reinstall the driver it belongs to, or remove the file"
            yield Finding("icd", "fault", f"/{_VENDORS}/{name}", what, remedy, _BACKENDS)


def _bundled(surroundings: Surroundings) -> bool:
    """Whether pyopencl's wheel is here, which brings a loader of its own."""
    return any(any(Path(folder, "pyopencl/.libs").glob("libOpenCL*.so*")) for folder in surroundings.packages)


def _library(root: Root, name: str) -> bool:
    if "/" in name:
        return root.has(name.lstrip("/"))
    return any(root.has(f"{folder}/{name}") for folder in _FOLDERS)
