# SPDX-License-Identifier: Apache-2.0
"""A toy decoder: one attention layer with real key/value memory, and logits that mostly follow from the last token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from dpfedge.backend.api import Budget
from dpfedge.stage.llm import LlmStage

HEAD, WIDTH = 16, 16
WORDS = ("Fine", ",", " it", " is", " warm", " today", ".", " Drive", " on", "!", " one", " two", " three", " four")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer_json(words: tuple[str, ...] = WORDS) -> bytes:
    """256 bytes, three special tokens (ids 0 to 2) and some words, byte-level like SmolLM2's."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: index for index, text in enumerate([*SPECIALS, *alphabet])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(SPECIALS))
    inner.add_tokens([AddedToken(word, normalized=False) for word in words])
    return inner.to_str().encode()


def decoder(following: Mapping[int, int], size: int, context: int, attention: float) -> onnx.ModelProto:
    """logits = 50 at `following[last token]` (−1: all NaN), plus `attention` times what one attention layer sees."""
    random = np.random.default_rng(7)
    table = np.zeros((size, size), np.float32)
    for last, token in following.items():
        table[last] = np.nan if token < 0 else 0
        table[last, token] = np.nan if token < 0 else 50
    weights = {
        "embedding": random.normal(0, 1, (size, WIDTH)).astype(np.float32),
        "packed": random.normal(0, 0.5, (WIDTH, 4 * HEAD)).astype(np.float32),
        "out": (attention * random.normal(0, 1, (2 * HEAD, size))).astype(np.float32),
        "table": table,
        "minus_one": np.array([-1], np.int64),
        "one": np.array([1], np.int32),
        "logits_shape": np.array([1, 1, size], np.int64),
    }
    cache = ["past_key_values.0.key", "past_key_values.0.value", "last_position", "total_length"]
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "packed"], ["qkv"]),
        helper.make_node("Shape", ["attention_mask"], ["total64"], start=1, end=2),
        helper.make_node("Cast", ["total64"], ["total"], to=TensorProto.INT32),
        helper.make_node("Sub", ["total", "one"], ["last_position"]),
        helper.make_node("Squeeze", ["total"], ["total_length"]),
        helper.make_node(
            "GroupQueryAttention", ["qkv", "", "", *cache], ["seen", "present.0.key", "present.0.value"],
            domain="com.microsoft", num_heads=2, kv_num_heads=1,
        ),
        helper.make_node("Gather", ["seen", "minus_one"], ["seen_last"], axis=1),
        helper.make_node("MatMul", ["seen_last", "out"], ["context_logits"]),
        helper.make_node("Gather", ["input_ids", "minus_one"], ["last"], axis=1),
        helper.make_node("Gather", ["table", "last"], ["chain_logits"]),
        helper.make_node("Add", ["context_logits", "chain_logits"], ["sum"]),
        helper.make_node("Reshape", ["sum", "logits_shape"], ["logits"]),
    ]  # fmt: skip
    shape = [1, 1, context, HEAD]
    past = [
        helper.make_tensor_value_info(f"past_key_values.0.{part}", TensorProto.FLOAT, shape)
        for part in ("key", "value")
    ]
    present = [
        helper.make_tensor_value_info(f"present.0.{part}", TensorProto.FLOAT, shape) for part in ("key", "value")
    ]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "n"]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, [1, "total"]),
        *past,
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, size]), *present]
    graph = helper.make_graph(
        nodes, "toy", inputs, outputs, [numpy_helper.from_array(w, n) for n, w in weights.items()]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.fixture(scope="session")
def assets() -> dict[str, bytes]:
    """The toy's tokenizer and chat template."""
    return {"tokenizer.json": tokenizer_json(), "chat_template.jinja": TEMPLATE.encode()}


@pytest.fixture(scope="session")
def ids(assets: dict[str, bytes]) -> Callable[[str], list[int]]:
    """The toy's token ids of a text."""
    inner = Tokenizer.from_str(assets["tokenizer.json"].decode())
    return lambda text: list(inner.encode(text, add_special_tokens=False).ids)


@pytest.fixture(scope="session")
def graph(driver: Any, ids: Callable[[str], list[int]]) -> Callable[..., Any]:
    """`graph(chain, context=64, attention=0.0)`: the loaded decoder; each token of `chain` is followed by the next."""

    def load(chain: list[int] | None = None, context: int = 64, attention: float = 0.0) -> Any:
        chain = chain or []
        size = 3 + 256 + len(WORDS)
        following = dict(pairwise(chain))
        return driver.Model("toy", {"llm": decoder(following, size, context, attention)}, {}).load("llm", Budget())

    return load


@pytest.fixture(scope="session")
def make_stage(driver: Any, assets: dict[str, bytes], ids: Callable[[str], list[int]]) -> Callable[..., LlmStage]:
    """`make_stage(answer, config, context=…)`: a warm stage that answers every prompt with `answer` (unique tokens)."""

    def make(
        answer: list[int], config: Mapping[str, Any] | None = None, context: int = 200, ends: tuple[int, ...] = (0, 2)
    ) -> LlmStage:
        chain = [*ids("\n"), *answer]
        size = 3 + 256 + len(WORDS)
        model = decoder(dict(pairwise(chain)), size, context, 0.0)
        settings = {"bos": 1, "eos": list(ends), "add_bos": False}
        stage = LlmStage(driver.Model("toy", {"llm": model}, assets, settings), config or {}, Budget())
        stage.warm()
        for _ in stage.settle():
            pass
        return stage

    return make


@pytest.fixture
def attentive(driver: Any, assets: dict[str, bytes], ids: Callable[[str], list[int]]) -> Any:
    """A bound model whose logits depend on everything its memory holds."""
    chain = [*ids("\n"), *ids("Fine, it is warm today."), 2]
    onnx_model = decoder(dict(pairwise(chain)), 3 + 256 + len(WORDS), 200, 1.0)
    return driver.Model("toy", {"llm": onnx_model}, assets, {"bos": 1, "eos": [0, 2], "add_bos": False})
