# SPDX-License-Identifier: Apache-2.0
"""Files of a model, found by role."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.compiler.recipe import ModelSource
from dpfedge.compiler.sources import find_files
from dpfedge.errors import ModelError


def source(family: str = "piper", **files: str) -> ModelSource:
    """A model in the folder `m`."""
    return ModelSource("voice", family, "folder", "m", "voice.yaml:4", "MIT", files, None, None)


def folder(base: Path, *names: str) -> Path:
    """Empty files."""
    (base / "m").mkdir()
    for name in names:
        (base / "m" / name).touch()
    return base


def test_find_files__by_role(tmp_path: Path) -> None:
    """Each role finds its file; licence and model card come along."""
    found = find_files(source(), folder(tmp_path, "a.onnx", "a.onnx.json", "LICENSE", "MODEL_CARD", "notes.txt"))

    assert {role: path.name for role, path in found.paths.items()} == {"model": "a.onnx", "card": "a.onnx.json"}
    assert [path.name for path in found.texts] == ["LICENSE", "MODEL_CARD"]
    assert found.licence == "MIT"


def test_find_files__a_licence_that_leads_out(tmp_path: Path) -> None:
    """What goes into the package unread must lie in the folder; a link inside it is fine."""
    base = folder(tmp_path, "a.onnx", "a.onnx.json", "TEXT")
    (base / "m/LICENSE").symlink_to("TEXT")
    assert [path.name for path in find_files(source(), base).texts] == ["LICENSE"]

    (base / "secret").touch()
    (base / "m/COPYING").symlink_to("../secret")
    with pytest.raises(ModelError, match="licence file lies outside the model's folder; found COPYING, a link to"):
        find_files(source(), base)


def test_find_files__several(tmp_path: Path) -> None:
    """Two candidates are an error with the way out, which works."""
    base = folder(tmp_path, "a.onnx", "b.onnx", "a.onnx.json")

    with pytest.raises(ModelError, match=r"voice\.yaml:4: several files for model; found a\.onnx, b\.onnx"):
        find_files(source(), base)
    assert find_files(source(model="b.onnx"), base).paths["model"].name == "b.onnx"


def test_find_files__no_folder(tmp_path: Path) -> None:
    """A missing folder is named."""
    with pytest.raises(ModelError, match="no such folder"):
        find_files(source(), tmp_path)


def test_find_files__split_model(tmp_path: Path) -> None:
    """The parts of one split model are one file, named by its first."""
    base = folder(tmp_path, "m-00002-of-00002.gguf", "m-00001-of-00002.gguf")

    assert find_files(source("decoder"), base).paths["model"].name == "m-00001-of-00002.gguf"


HF = ("config.json", "tokenizer.json", "tokenizer_config.json")


def test_find_files__hugging_face_folder(tmp_path: Path) -> None:
    """A folder with config.json, tokenizer and safetensors is taken as one; an index stands for its files."""
    found = find_files(source("decoder"), folder(tmp_path, *HF, "model.safetensors"))
    assert {role: path.name for role, path in found.paths.items()} == {
        "config": "config.json", "tokenizer": "tokenizer.json", "weights": "model.safetensors",
    }  # fmt: skip

    for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json"):
        (tmp_path / "m" / name).touch()
    assert find_files(source("decoder"), tmp_path).paths["weights"].name == "model.safetensors.index.json"


def test_find_files__two_kinds(tmp_path: Path) -> None:
    """A GGUF beside a whole Hugging Face folder is ambiguous until one is named; beside a part of one it is not."""
    base = folder(tmp_path, *HF, "m.gguf")
    assert set(find_files(source("decoder"), base).paths) == {"model"}

    (base / "m" / "model.safetensors").touch()
    with pytest.raises(
        ModelError, match=r"several kinds of files; found .*; allowed \*\.gguf or config\.json with token"
    ):
        find_files(source("decoder"), base)
    assert set(find_files(source("decoder", model="m.gguf"), base).paths) == {"model"}
    assert set(find_files(source("decoder", weights="model.safetensors"), base).paths) == {
        "config", "tokenizer", "weights",
    }  # fmt: skip
    with pytest.raises(ModelError, match="no kind of files is complete; found model, config"):
        find_files(source("decoder", model="m.gguf", config="config.json"), base)


def test_find_files__neither_kind(tmp_path: Path) -> None:
    """What is there, and what would do, are named."""
    with pytest.raises(ModelError, match="no kind of files is complete; found README"):
        find_files(source("decoder"), folder(tmp_path, "README"))
