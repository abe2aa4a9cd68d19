# SPDX-License-Identifier: Apache-2.0
"""Families: what each one hands to the rest of the compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_gguf import llama_file

from dpfedge.compiler.families import FAMILIES, Options
from dpfedge.compiler.nodes import Nodes
from dpfedge.errors import ModelError
from dpfedge.tensors import TensorSpec

GOLDEN = Path(__file__).parents[2] / "golden" / "decoders"
GRAPHS = (Path(__file__).parents[3] / "dpfedge" / "compiler" / "GRAPHS.md").read_text()


def test_graphs_md__describes_each_family() -> None:
    """Each family has its section in the contract."""
    for name in FAMILIES:
        assert f"\n## {name}\n" in GRAPHS


@pytest.mark.parametrize("family", ["decoder", "llama"])
def test_decoder__numbers_and_assets(tmp_path: Path, family: str) -> None:
    """Config and assets have the keys the contract names; the default context never exceeds the trained one."""
    found = FAMILIES[family].load({"model": llama_file(tmp_path)}, Options("exact"))
    section = GRAPHS.split("## decoder\n")[1].split("## ")[0]

    assert found.config["context"] == 64
    assert found.memory_bytes == 2 * 4 * 2 * 32 * 64
    for key in (*found.config, *found.assets):
        assert f"`{key}`" in section


def test_decoder__more_context_than_it_was_trained_on(tmp_path: Path) -> None:
    """What a recipe names is refused, not made less in silence."""
    with pytest.raises(ModelError, match="context is out of range; found 4096; allowed 1 to 64"):
        FAMILIES["decoder"].load({"model": llama_file(tmp_path)}, Options("exact", 4096))


@pytest.mark.parametrize("name", ["gemma3", "llama3", "qwen2", "qwen3"])
def test_decoder__every_architecture(name: str) -> None:
    """The file says which architecture it is; decisions name its matrices."""
    found = FAMILIES["decoder"].load({"model": GOLDEN / f"{name}.gguf"}, Options())

    assert found.config["architecture"] == name.removesuffix("3" if name == "llama3" else "")
    assert {"embedding=F16", "mode=fast"} <= set(dict(found.decisions))
    assert [value.name for value in found.graphs["llm"].graph.input][:2] == ["input_ids", "attention_mask"]


def test_silero__other_model(tmp_path: Path) -> None:
    """A graph with other inputs is not a VAD."""
    nodes = Nodes("g")
    nodes.add("Identity", ["x"], "y")
    path = tmp_path / "x.onnx"
    path.write_bytes(nodes.model([TensorSpec("x", "f32", (1,))], [TensorSpec("y", "f32", (1,))]).SerializeToString())

    with pytest.raises(ModelError, match="not a Silero VAD"):
        FAMILIES["silero-vad"].load({"model": path}, Options())
