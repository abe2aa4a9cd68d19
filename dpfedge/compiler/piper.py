# SPDX-License-Identifier: Apache-2.0
"""A Piper voice (VITS, arXiv 2106.06103) in, two graphs out: `encode` to the latent, `decode` to samples.

The decoder is convolutional, so a window of the latent with enough context on both sides gives the same samples as the
whole; `overlap_frames` is that context, computed from the kernels. It knows no text and no phonemes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper

from dpfedge.errors import ModelError

__all__ = ["build_piper", "cut", "hop_samples", "overlap_frames"]

_DECODER = "/dec/"
_SEED = 20_000.0  # any fixed value: the first run of a fresh session is then the same everywhere


def build_piper(model: onnx.ModelProto) -> dict[str, onnx.ModelProto]:
    """The graphs by name (ports: dpfedge/compiler/GRAPHS.md); ModelError when this is no single-speaker Piper voice."""
    names = [value.name for value in model.graph.input]
    if names != ["input", "input_lengths", "scales"]:
        raise ModelError(
            "not a single-speaker Piper voice",
            where="voice",
            found=", ".join(names),
            allowed="input, input_lengths, scales",
        )
    convolutions = [node for node in model.graph.node if node.name.startswith(_DECODER) and node.op_type == "Conv"]
    last = [node for node in model.graph.node if node.name.startswith(_DECODER) and node.op_type == "Tanh"]
    if not convolutions or not last:
        raise ModelError("the voice has no decoder to cut off", where="voice", allowed=f"nodes called {_DECODER}…")
    latent, samples = convolutions[0].input[0], last[-1].output[0]
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == convolutions[0].input[1])
    channels = weight.dims[1]
    encode = cut(model, "encode", list(model.graph.input), [(latent, "latent", [1, channels, "f"])])
    decode = cut(model, "decode", [_port(latent, [1, channels, "n"])], [(samples, "samples", [1, 1, "m"])])
    _rename(decode.graph, latent, "latent")
    _fix_batch(encode.graph)
    for node in encode.graph.node:
        if node.op_type.startswith("Random"):
            node.attribute.append(helper.make_attribute("seed", _SEED))
    return {"encode": encode, "decode": decode}


def cut(
    model: onnx.ModelProto,
    name: str,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[tuple[str, str, list[int | str]]],
) -> onnx.ModelProto:
    """The part of `model` that makes `outputs` (tensor, new name, dims) of `inputs`; ModelError if they are too few."""
    makers = {output: index for index, node in enumerate(model.graph.node) for output in node.output}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    given = {value.name for value in inputs}
    wanted, used, kept = [tensor for tensor, _, _ in outputs], set[int](), set[str]()
    while wanted:
        tensor = wanted.pop()
        if tensor in given or not tensor:
            continue
        if tensor in constants:
            kept.add(tensor)
        elif tensor not in makers:
            raise ModelError("graph cannot be cut here: an input is missing", where=name, found=tensor)
        elif makers[tensor] not in used:
            used.add(makers[tensor])
            wanted += model.graph.node[makers[tensor]].input
    nodes = [onnx.NodeProto.FromString(model.graph.node[index].SerializeToString()) for index in sorted(used)]
    graph = helper.make_graph(
        nodes,
        name,
        inputs,
        [_port(tensor, dims) for tensor, _, dims in outputs],
        [constants[key] for key in sorted(kept)],
    )
    for tensor, new, _ in outputs:
        _rename(graph, tensor, new)
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version, producer_name="dpfedge"
    )


def _port(name: str, dims: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new
    for value in (*graph.input, *graph.output):
        if value.name == old:
            value.name = new


def _fix_batch(graph: onnx.GraphProto) -> None:
    for value in graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "batch_size":
                dim.dim_value = 1


def _ints(node: onnx.NodeProto, name: str, default: int) -> int:
    return next(
        (attribute.ints[0] for attribute in node.attribute if attribute.name == name and attribute.ints), default
    )


def hop_samples(decode: onnx.ModelProto) -> int:
    """Samples per latent frame: the product of the decoder's strides."""
    return math.prod(_ints(node, "strides", 1) for node in decode.graph.node if node.op_type == "ConvTranspose")


def overlap_frames(decode: onnx.ModelProto) -> int:
    """Latent frames of context on each side that make a window exact: half the receptive field, rounded up.

    Walks from the input to the output and keeps, per tensor, how far (in input frames) it sees; a layer at a rate of r
    per frame with kernel k and dilation d sees (k − 1)·d / 2r further.
    """
    reach: dict[str, tuple[float, int]] = {"latent": (0.0, 1)}
    for node in decode.graph.node:
        known = [reach[name] for name in node.input if name in reach]
        if not known:
            continue
        far, rate = max(item[0] for item in known), known[0][1]
        kernel = _ints(node, "kernel_shape", 1)
        if node.op_type == "Conv":
            far += (kernel - 1) * _ints(node, "dilations", 1) / 2 / rate
        elif node.op_type == "ConvTranspose":
            rate *= _ints(node, "strides", 1)
            far += kernel / 2 / rate
        for name in node.output:
            reach[name] = (far, rate)
    return math.ceil(reach["samples"][0])
