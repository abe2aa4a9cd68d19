# SPDX-License-Identifier: Apache-2.0
"""LSTM with ONNX's default activations, forward, reverse or both: one product for all inputs, one kernel a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import have, need
from dpfedge_opencl.ops.gemm import Product, packed, product
from dpfedge_opencl.ops.source import divided, i32, kernel, launch, panel_of, tensors, vector

__all__ = ["Lstm"]

_LANES = 16


def _recurrent(matrix: Array, size: int) -> Array:
    """[4·size, size] as [size / 16][k][gate][16]."""
    gates = np.pad(matrix.reshape(4, size, size), ((0, 0), (0, -size % _LANES), (0, 0)))
    return np.ascontiguousarray(gates.reshape(4, -1, _LANES, size).transpose(1, 3, 0, 2))


@op("LSTM")
class Lstm:
    """Y, the last hidden and the last cell state."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        attrs = node.attrs
        if any(attrs.get(name) for name in ("activations", "clip", "input_forget", "layout")):
            return "activations, clip, input_forget or layout"
        if have(node, 4) or have(node, 7):
            return "lengths or peepholes"
        if bool(have(node, 5)) != bool(have(node, 6)):
            return "one initial state without the other"
        if any(lowering.weight(name) is None for name in node.inputs[1:4] if name):
            return "computed weights"
        return None if all(one in ("", "f32") for one in dtypes) else f"dtypes {dtypes}"

    def lower(self, node: Node, lowering: Lowering) -> None:
        w, r = lowering.weight(node.inputs[1]), lowering.weight(node.inputs[2])
        b = lowering.weight(have(node, 3)) if have(node, 3) else None
        assert w is not None
        assert r is not None
        directions, size = r.shape[0], r.shape[2]
        bias = np.zeros((directions, 8 * size), np.float32) if b is None else b
        bias = bias[:, : 4 * size] + bias[:, 4 * size :]
        panel = panel_of(lowering.arch)
        names = (
            lowering.add(node, "input", packed(w.reshape(-1, w.shape[2]).T, panel)),
            lowering.add(node, "recurrent", np.stack([_recurrent(one, size) for one in r])),
            lowering.add(node, "bias", bias.reshape(-1)),
        )
        node.inputs = (node.inputs[0], *names, have(node, 5), have(node, 6))
        node.attrs.update(size=size, directions=directions, panel=panel)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        directions, size = node.attrs["directions"], node.attrs["size"]
        state = ("f32", (directions, x.shape[1], size))
        return [("f32", (x.shape[0], directions, x.shape[1], size)), state, state][: len(node.outputs)]

    def emit(self, node: Node, to: Emitting) -> None:
        steps, batch, width = to.value(node.inputs[0]).shape
        directions, size = node.attrs["directions"], node.attrs["size"]
        wide = directions * 4 * size
        gates = to.scratch("f32", (steps * batch, wide))
        what = Product(steps * batch, wide, width, width, panel=node.attrs["panel"], bias=node.inputs[3], bias_kind=1)
        product(to, Node("", node.name, (), (), {}), what, node.inputs[0], node.inputs[1], gates)
        shapes = ((steps, directions, batch, size), (directions, batch, size), (directions, batch, size))
        outputs = [*node.outputs, "", ""][:3]
        y, h_last, cell = (name or to.scratch("f32", shape) for name, shape in zip(outputs, shapes, strict=True))
        for direction in range(directions):
            self._steps(node, to, direction, (gates, y, h_last, cell))

    def _steps(self, node: Node, to: Emitting, direction: int, names: tuple[str, str, str, str]) -> None:
        gates, y, h_last, cell = names
        steps, batch, _ = to.value(node.inputs[0]).shape
        directions, size, lanes = node.attrs["directions"], node.attrs["size"], min(vector(to.facts), _LANES)
        made, state = kernel("lstm", "lstm_step", to.facts, V=lanes), batch * size
        backward = direction == 1 or node.attrs.get("direction") == "reverse"
        order = range(steps - 1, -1, -1) if backward else range(steps)
        h, c = node.inputs[4], node.inputs[5]
        before = direction * state
        zero = not h and not c
        for count, t in enumerate(order):
            here = (t * directions + direction) * state
            arguments = tensors((gates, node.inputs[2], h or y, c or cell, y, cell, h_last))
            numbers = (
                batch, size, directions * 4 * size, (t * batch * directions + direction) * 4 * size,
                direction * divided(size, _LANES) * size * 64, before, direction * state, here,
                int(count == steps - 1), int(zero),
            )  # fmt: skip
            launch(to, made, [*arguments, *(i32(one) for one in numbers)], (divided(size, lanes), batch), (16, 4),
                   batch * 4 * size * size)  # fmt: skip
            h, c, before, zero = y, cell, here, False
