# SPDX-License-Identifier: Apache-2.0
"""Which files a model is made of beside the one that is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx

from dpfedge.compiler.companions import companions
from dpfedge.compiler.nodes import Nodes
from dpfedge.tensors import TensorSpec


def test_companions__of_each_kind(tmp_path: Path) -> None:
    """External data, parts of a split GGUF, shards of an index; nothing for a file that stands alone."""
    nodes = Nodes("g")
    nodes.add("Add", ["x", nodes.constant("w", np.ones(64, np.float32))], "y")
    model = nodes.model([TensorSpec("x", "f32", (64,))], [TensorSpec("y", "f32", (64,))])
    onnx.save(model, str(tmp_path / "a.onnx"), save_as_external_data=True, location="a.bin", size_threshold=0)
    (tmp_path / "odd.onnx").write_bytes(b"\x20\0\0\0ORTM")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}}))

    assert companions(tmp_path / "a.onnx") == [tmp_path / "a.bin"]
    assert companions(tmp_path / "odd.onnx") == []
    assert companions(index) == [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    assert companions(tmp_path / "m-00002-of-00003.gguf") == [
        tmp_path / f"m-0000{number}-of-00003.gguf" for number in (1, 3)
    ]
    assert companions(tmp_path / "m.gguf") == []
