# SPDX-License-Identifier: Apache-2.0
"""Declares what pyproject.toml cannot: the compiled module `dpfedge._core`, and the boards' place in a wheel."""

import shutil
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py


class BuildWithBoards(build_py):
    """Boards are data at the top of the source tree; a wheel carries them as `dpfedge/_boards`."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "dpfedge", "_boards")
            target.mkdir(parents=True, exist_ok=True)
            for file in sorted([*glob("boards/*.yaml"), "boards/_index.json"]):
                shutil.copy(file, target)


core = Extension(
    "dpfedge._core",
    sources=sorted(glob("firmware_bridge/src/*.c") + glob("firmware_bridge/python/*.c")),
    depends=sorted(glob("firmware_bridge/include/dpf/*.h") + glob("firmware_bridge/*/*.h")),
    include_dirs=["firmware_bridge/include", "firmware_bridge/src"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers"],
    py_limited_api=True,
)

setup(
    ext_modules=[core],
    cmdclass={"build_py": BuildWithBoards},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
