# SPDX-License-Identifier: Apache-2.0
"""The files of a decoder by role in, its tensors, shape, special ids and assets out, whichever format they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfedge.compiler.decoder.assets import folder_assets
from dpfedge.compiler.decoder.folder import FolderSource, folder_shape
from dpfedge.compiler.decoder.gguf import GgufSource, gguf_shape
from dpfedge.compiler.decoder.shape import DecoderShape
from dpfedge.compiler.decoder.source import TensorSource
from dpfedge.compiler.importer.confined import confined
from dpfedge.compiler.importer.gguf_parts import open_gguf_parts
from dpfedge.compiler.importer.safetensors import open_weights, read_json
from dpfedge.compiler.tokenizer import chat_template, special_ids, tokenizer_json

__all__ = ["FOLDER_FILES", "GGUF_FILES", "OpenedDecoder", "open_decoder"]

GGUF_FILES: Mapping[str, str] = {"model": "*.gguf"}
FOLDER_FILES: Mapping[str, str] = {
    "config": "config.json", "tokenizer": "tokenizer.json", "weights": "*.safetensors*",
}  # fmt: skip
"""Roles of a Hugging Face folder; its other files are looked for beside config.json."""


@dataclass(frozen=True, slots=True)
class OpenedDecoder:
    """One model file or folder, open; its arrays are views, so it stays open as long as they are used."""

    name: str
    source: TensorSource
    shape: DecoderShape
    ids: Mapping[str, Any]
    """`bos`, `eos`, `pad`, `add_bos`."""
    assets: Mapping[str, bytes]


def open_decoder(files: Mapping[str, Path]) -> OpenedDecoder:
    """Open `files`, which have the roles of GGUF_FILES or of FOLDER_FILES."""
    if "config" in files:
        return _open_folder(files)
    gguf = open_gguf_parts(files["model"])
    shape = gguf_shape(gguf)
    assets = {"tokenizer.json": tokenizer_json(gguf), "chat_template.jinja": chat_template(gguf).encode()}
    name = gguf.get("general.name", str, files["model"].stem)
    return OpenedDecoder(name, GgufSource(gguf, shape), shape, special_ids(gguf), assets)


def _open_folder(files: Mapping[str, Path]) -> OpenedDecoder:
    path = files["config"]
    folder = path.parent
    config = read_json(confined(folder, path.name, str(folder), "file"))
    shape = folder_shape(config, str(path))
    source = FolderSource(open_weights(files["weights"]), config, shape)
    ids, assets = folder_assets(folder, config, shape.vocabulary)
    return OpenedDecoder(folder.resolve().name, source, shape, ids, assets)
