# SPDX-License-Identifier: Apache-2.0
"""A model file in, the other files its content comes from out: external data, the parts of a split model, shards.

For files an importer has accepted: it checks nothing again and reads no weight.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from dpfedge.compiler.importer.onnx import all_tensors

__all__ = ["companions"]

_PART = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


def companions(path: Path) -> list[Path]:
    """Every file beside `path` that belongs to it, in the order of their names."""
    names: set[str] = set()
    if match := _PART.fullmatch(path.name):
        names = {f"{match[1]}-{number:05}-of-{match[2]}.gguf" for number in range(1, int(match[2]) + 1)}
    elif path.name.endswith(".safetensors.index.json"):
        names = set(json.loads(path.read_bytes()).get("weight_map", {}).values())
    elif path.suffix == ".onnx":
        names = _external(path)
    return sorted(path.parent / name for name in names - {path.name})


def _external(path: Path) -> set[str]:
    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError:
        return set()  # an ORT-format file under another name has no external data
    places = (tensor.external_data for tensor in all_tensors(model))
    return {entry.value for place in places for entry in place if entry.key == "location"}
