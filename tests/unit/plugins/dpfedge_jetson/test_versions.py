# SPDX-License-Identifier: Apache-2.0
"""Versions of JetPack's libraries from their files."""

from __future__ import annotations

from pathlib import Path

from dpfedge_jetson.versions import libraries


def test_libraries__of_a_jetpack(tmp_path: Path) -> None:
    """The longest number each is called by."""
    folder = tmp_path / "usr/lib/aarch64-linux-gnu"
    folder.mkdir(parents=True)
    for name in ("libnvinfer.so.10", "libnvinfer.so.10.3.0", "libcudnn.so.9.3.0", "libnvinfer.so"):
        (folder / name).touch()

    found = libraries(tmp_path)
    assert (found["tensorrt"], found["cudnn"]) == ("10.3.0", "9.3.0")
    assert found["onnxruntime"].startswith("onnxruntime")


def test_libraries__without_any(tmp_path: Path) -> None:
    """Unknown, not empty."""
    assert libraries(tmp_path)["tensorrt"] == "unknown"
