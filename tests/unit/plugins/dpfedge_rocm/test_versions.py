# SPDX-License-Identifier: Apache-2.0
"""Versions of ROCm from its files."""

from __future__ import annotations

from pathlib import Path

from dpfedge_rocm.versions import libraries


def test_libraries__of_a_rocm(tmp_path: Path) -> None:
    """The longest number the library is called by."""
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info/version").write_text("7.0.2-56\n")
    (tmp_path / "lib").mkdir()
    for number in ("3", "3.0", "3.0.20100.70002"):
        (tmp_path / f"lib/libmigraphx_c.so.{number}").touch()

    found = libraries(tmp_path)
    assert (found["rocm"], found["migraphx"]) == ("7.0.2-56", "3.0.20100.70002")
    assert found["onnxruntime"].startswith("onnxruntime")


def test_libraries__without_rocm(tmp_path: Path) -> None:
    """Unknown, not empty."""
    assert libraries(tmp_path)["rocm"] == libraries(tmp_path)["migraphx"] == "unknown"
