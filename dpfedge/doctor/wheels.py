# SPDX-License-Identifier: Apache-2.0
"""Installed builds of onnxruntime: folders of packages in, doubles and builds without kernels for these GPUs out.

It reads files only and imports nothing of what it judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from dpfedge.backend.fatbin import read_kernels
from dpfedge.doctor.surroundings import Finding, Surroundings
from dpfedge.records import dataclass

__all__ = ["OWNED", "Wheel", "check_doubles", "check_kernels", "check_metadata", "wheels"]

OWNED = "onnxruntime/__init__.py"
"""A distribution that has this file owns the folder `onnxruntime`."""
_BACKENDS = {"onnxruntime-gpu": ("cuda",), "onnxruntime-migraphx": ("rocm",), "onnxruntime-rocm": ("rocm",)}
_CUDA_LIBRARY = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
_CUDA = re.compile(r"^nvidia-cuda-runtime(?:-cu(\d{1,3})\b|\s*[~=>]=\s*(\d{1,3})\b)")


@dataclass(frozen=True, slots=True)
class Wheel:
    """One installed build of onnxruntime."""

    name: str
    version: str
    folder: Path
    """Where its packages lie."""
    cuda: int | None
    """The CUDA it was built for, as far as its metadata tells."""

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"

    @property
    def backends(self) -> tuple[str, ...]:
        """Backends that use it beside the CPU's."""
        return _BACKENDS.get(self.name, ())


def wheels(surroundings: Surroundings) -> tuple[Wheel, ...]:
    """Every distribution that owns the folder `onnxruntime`, by name."""
    found: dict[str, Wheel] = {}
    for one in distributions(path=list(surroundings.packages)):
        wheel = _wheel(one)
        if wheel is not None:
            found.setdefault(wheel.name, wheel)
    return tuple(found[name] for name in sorted(found))


def _wheel(one: Distribution) -> Wheel | None:
    """A build of onnxruntime; None for another distribution, and for one whose metadata cannot be read."""
    try:
        name = (one.metadata["Name"] or "").lower().replace("_", "-")
        if ("onnxruntime" in name or name.startswith("ort-")) and _owns(one):
            return Wheel(name, one.version, Path(str(one.locate_file(""))), _cuda(one))
    except UnicodeDecodeError:  # `check_metadata` tells it
        pass
    return None


def check_metadata(surroundings: Surroundings) -> Iterator[Finding]:
    """Distributions whose metadata cannot be read: half installed, or their files are damaged."""
    for one in distributions(path=list(surroundings.packages)):
        try:
            name = one.metadata["Name"]
            list(one.files or ()) if name else None
        except UnicodeDecodeError as error:
            name = None
            why = f"it is no UTF-8: {error.reason} at byte {error.start}"
        else:
            why = "there is no name in it"
        if not name:
            where = f"metadata in {getattr(one, '_path', one.locate_file(''))}"
            yield Finding("wheels", "warning", where, why, "remove that folder, and install what it belongs to anew")


def _owns(one: Distribution) -> bool:
    return any(str(file) == OWNED for file in one.files or ())


def _cuda(one: Distribution) -> int | None:
    for line in one.requires or ():
        if match := _CUDA.match(line):
            return int(match[1] or match[2])
    return None


def check_doubles(surroundings: Surroundings) -> Iterator[Finding]:
    """Two distributions that own one folder: the later overwrote files of the earlier, and removing one breaks both."""
    found = wheels(surroundings)
    if len(found) > 1:
        names = " ".join(wheel.name for wheel in found)
        yield Finding(
            "wheels",
            "fault",
            "onnxruntime",
            f"{len(found)} distributions own its folder: {', '.join(wheel.title for wheel in found)}",
            f"pip uninstall -y {names}, then pip install the one you want",
        )


def check_kernels(surroundings: Surroundings) -> Iterator[Finding]:
    """A build without kernels for a GPU that is here: it loads, and the first operator fails."""
    gpus = surroundings.machine.accelerators
    archs = {gpu.arch for gpu in gpus if gpu.kind == "gpu.nvidia" and gpu.arch is not None}
    for wheel in wheels(surroundings) if archs else ():
        kernels = read_kernels(wheel.folder / _CUDA_LIBRARY)
        numbers = {arch: int(arch[3:]) for arch in archs if arch[3:].isdecimal()}
        for arch, number in sorted(numbers.items()):
            if kernels is not None and not kernels.run_on(number):
                had = ", ".join(f"sm_{code}" for code in sorted(kernels.cubins))
                what = f"it has no kernels for {arch} (only {had}{'' if kernels.ptx else ', and no PTX'})"
                remedy = "install a build for this GPU; for Jetson one of its JetPack's index"
                yield Finding("kernels", "fault", wheel.title, what, remedy, ("cuda", "jetson"))
