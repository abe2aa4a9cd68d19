# SPDX-License-Identifier: Apache-2.0
"""The rebuilt Moonshine graphs, from made-up graphs that carry only the shipped names and weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_cpu.session import CpuExecutable
from made_graphs import loaded, relative
from onnx import TensorProto, helper, numpy_helper

from dpfedge.compiler.moonshine import MoonshineShape, build_moonshine
from dpfedge.errors import ModelError

LAYERS, HEADS, DIM, VOCABULARY, HIDDEN = 2, 2, 12, 40, 32
WIDTH = HEADS * DIM
RANDOM = np.random.default_rng(6)


class Shipped:
    """Collects nodes and initialisers as the exporter names them; nothing is connected."""

    def __init__(self, suffix: str) -> None:
        self.suffix, self.nodes, self.constants = suffix, list[onnx.NodeProto](), list[onnx.TensorProto]()

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name + self.suffix))
        return name + self.suffix

    def floats(self, name: str, *shape: int, about: float = 0.0) -> str:
        return self.constant(name, (about + RANDOM.standard_normal(shape) * 0.1).astype(np.float32))

    def product(self, output: str, rows: int, columns: int, *, bias: bool = False, split: bool = False) -> None:
        codes = self.constant(f"{output}_quantized", RANDOM.integers(90, 170, (rows, columns), np.uint8))
        scale = self.constant(f"{output}_scale", np.array(0.01, np.float32))
        zero = self.constant(f"{output}_zero_point", np.array(128, np.uint8))
        name = self.floats(f"{output}_bias", columns) if bias else ""
        if split:
            self.nodes.append(helper.make_node("MatMulIntegerToFloat", ["q", codes, "s", scale, "z", zero], [output]))
        else:
            self.nodes.append(helper.make_node("DynamicQuantizeMatMul", ["x", codes, scale, zero, name], [output]))

    def rotary(self, root: str) -> None:
        frequency = self.constant("frequency", np.array([[[1.0], [0.1]]], np.float32))
        self.nodes.append(helper.make_node("Expand", [frequency, "shape"], [f"{root}/rotary_emb/Expand_output_0"]))


def encoder() -> onnx.ModelProto:
    """The encoder's names."""
    made = Shipped("")
    for name, *shape in [
        ("conv1.weight", WIDTH, 1, 127),
        ("conv2.weight", 2 * WIDTH, WIDTH, 7),
        ("conv3.weight", WIDTH, 2 * WIDTH, 3),
    ]:
        made.floats(str(name), *map(int, shape))
    made.floats("conv2.bias", 2 * WIDTH)
    made.floats("conv3.bias", WIDTH)
    for op, about in (("Mul", 1.0), ("Add", 0.0)):
        gain = made.floats(f"group.{op}", WIDTH, 1, about=about)
        made.nodes.append(helper.make_node(op, ["a", gain], [f"/groupnorm/{op}_output_0"]))
    made.rotary("")
    made.floats("layer_norm.weight", WIDTH, about=1.0)
    for layer in range(LAYERS):
        base = f"layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            made.floats(f"{base}.{norm}.weight", WIDTH, about=1.0)
        for part in "qkvo":
            made.product(f"/{base}/self_attn/{part}_proj/MatMul_output_0", WIDTH, WIDTH, split=part != "o")
        made.product(f"/{base}/mlp/fc1/Add_output_0", WIDTH, HIDDEN, bias=True)
        made.product(f"/{base}/mlp/fc2/Add_output_0", HIDDEN, WIDTH, bias=True)
    graph = helper.make_graph(made.nodes, "encoder", [], [], made.constants)
    return helper.make_model(graph, ir_version=10)


def decoder() -> onnx.ModelProto:
    """The merged decoder's names: both branches have the same weights."""
    made = Shipped("_merged_0")
    root = "/model/decoder"
    embedding = "model.decoder.embed_tokens.weight"
    codes = RANDOM.integers(90, 170, (VOCABULARY, WIDTH), np.uint8)
    parts = {"quantized": codes, "scale": np.array(0.01, np.float32), "zero_point": np.array(128, np.uint8)}
    for part, array in parts.items():
        made.constants.append(numpy_helper.from_array(np.asarray(array), f"{embedding}_merged_0_{part}"))
    made.rotary(root)
    made.floats("model.decoder.norm.weight", WIDTH, about=1.0)
    made.product("logits", WIDTH, VOCABULARY)
    for layer in range(LAYERS):
        base = f"layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm", "final_layernorm"):
            made.floats(f"model.decoder.{base}.{norm}.weight", WIDTH, about=1.0)
        for kind in ("self_attn", "encoder_attn"):
            for part in "qkvo":
                made.product(f"{root}/{base}/{kind}/{part}_proj/MatMul_output_0", WIDTH, WIDTH, split=part in "kv")
        made.product(f"{root}/{base}/mlp/fc1/Add_output_0", WIDTH, 2 * HIDDEN, bias=True)
        made.product(f"{root}/{base}/mlp/fc2/Add_output_0", HIDDEN, WIDTH, bias=True)
    branch = helper.make_graph(made.nodes, "branch", [], [])
    node = helper.make_node("If", ["c"], ["logits_out"], then_branch=branch, else_branch=branch)
    keys = [
        helper.make_tensor_value_info(f"past_key_values.{layer}.decoder.key", TensorProto.FLOAT, [1, HEADS, "p", DIM])
        for layer in range(LAYERS)
    ]
    graph = helper.make_graph([node], "decoder", keys, [], made.constants)
    return helper.make_model(graph, ir_version=10)


@pytest.fixture(scope="module")
def graphs() -> dict[str, CpuExecutable]:
    """The three graphs, loaded."""
    shape, made = build_moonshine(encoder(), decoder())
    assert shape == MoonshineShape(LAYERS, WIDTH, HEADS, VOCABULARY, 4)
    return {name: loaded(model) for name, model in made.items()}


def test_encode__one_frame_per_384_samples(graphs: dict[str, CpuExecutable]) -> None:
    """Frames are counted as the three strides say, and every value is written."""
    for samples, frames in ((895, 1), (895 + 384, 2), (16000, 40)):
        found = graphs["encode"].run({"samples": RANDOM.standard_normal((1, samples)).astype(np.float32)})["features"]
        assert found.shape == (1, frames, WIDTH)
        assert np.isfinite(found).all()


FEATURES = RANDOM.standard_normal((1, 9, WIDTH)).astype(np.float32)


def test_decode_step__continues_first(graphs: dict[str, CpuExecutable]) -> None:
    """One token and two steps give the cache that three tokens at once give, within 8-bit noise."""
    tokens = np.array([[1, 7, 30]], np.int64)
    whole = graphs["decode_first"].run({"tokens": tokens, "features": FEATURES})
    first = graphs["decode_first"].run({"tokens": tokens[:, :1], "features": FEATURES})
    state = {name.replace("present", "past"): array for name, array in first.items() if name != "token"}
    for index in (1, 2):
        found = graphs["decode_step"].run({"last": tokens[:, index : index + 1], **state})
        state |= {name.replace("present", "past"): array for name, array in found.items() if name != "token"}

    for layer in range(LAYERS):
        for part in ("key", "value"):
            assert relative(state[f"past.{layer}.{part}"], whole[f"present.{layer}.{part}"]) < 0.05


def test_decode_first__is_causal(graphs: dict[str, CpuExecutable]) -> None:
    """The cache of a token does not depend on what follows it, within 8-bit noise."""
    one, other = (
        graphs["decode_first"].run({"tokens": np.array([[1, 7, last]], np.int64), "features": FEATURES})
        for last in (30, 31)
    )

    assert relative(one["present.1.key"][:, :, :2], other["present.1.key"][:, :, :2]) < 0.05
    assert relative(one["present.1.key"][:, :, 2:], other["present.1.key"][:, :, 2:]) > 0.05


def test_decode_first__tokens_at_each_position(graphs: dict[str, CpuExecutable]) -> None:
    """There is one best token per position, so that drafts can be verified."""
    found = graphs["decode_first"].run({"tokens": np.array([[1, 7, 30]], np.int64), "features": FEATURES})

    assert found["token"].shape == (1, 3)
    assert found["cross.0.key"].shape == (1, HEADS, 9, DIM)


def test_build_moonshine__other_graphs() -> None:
    """A decoder without If, and a weight that is missing, are named."""
    with pytest.raises(ModelError, match="decoder has no If"):
        build_moonshine(encoder(), encoder())
    cut = decoder()
    del cut.graph.node[0].attribute[0].g.node[-1]
    del cut.graph.node[0].attribute[1].g.node[-1]
    with pytest.raises(ModelError, match="no int8 product of this name"):
        build_moonshine(encoder(), cut)
