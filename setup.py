# SPDX-License-Identifier: Apache-2.0
"""Declares the compiled module `dpfedge._core`; everything else about the distribution is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

core = Extension(
    "dpfedge._core",
    sources=sorted(glob("firmware_bridge/src/*.c") + glob("firmware_bridge/python/*.c")),
    depends=sorted(glob("firmware_bridge/include/dpf/*.h") + glob("firmware_bridge/*/*.h")),
    include_dirs=["firmware_bridge/include", "firmware_bridge/src"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers"],
    py_limited_api=True,
)

setup(ext_modules=[core], options={"bdist_wheel": {"py_limited_api": "cp311"}})
