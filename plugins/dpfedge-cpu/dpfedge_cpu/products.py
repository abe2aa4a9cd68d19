# SPDX-License-Identifier: Apache-2.0
"""MatMulNBits and what is added to it, made one BlockProduct each: a graph in, the same function, rounded less, out.

BlockProduct is this plugin's own operator (`kernels/blocks.h`): it rounds activations to 16 bits where MatMulNBits of
accuracy level 4 rounds to 8, and reads a matrix as the package has it, where onnxruntime packs it anew at each load.
Products of any other level are to be of floats, and stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dpfedge.backend.api import Array
from dpfedge_cpu.branches import drop_unused, free_name, names, reads, rewrite
from dpfedge_cpu.kernels import DOMAIN
from dpfedge_cpu.matrix import BLOCK, Matrix

__all__ = ["own_products"]

_NORMS = {"SimplifiedLayerNormalization": 1, "SkipSimplifiedLayerNormalization": 2}  # op → its input gamma


@dataclass(frozen=True, slots=True)
class _Product:
    """`end` is the node whose result it is; `readers` those of its nodes that read `x`.

    `loud` are columns that x has divided by a factor, which what is added makes good: column → factor.
    """

    end: onnx.NodeProto
    readers: tuple[str, ...]
    x: str
    matrix: Matrix
    bias: str
    loud: Mapping[int, float]


def own_products(model: onnx.ModelProto) -> int:
    """Rewrite the products of the outermost graph that may be rounded; how many there were."""
    graph = model.graph
    products = _Products(graph)
    count = rewrite(graph, products.instead, products.made)
    if count:
        if all(one.domain != DOMAIN for one in model.opset_import):
            model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        drop_unused(graph)  # once more: what only the sums read
    return len(products.fit)


class _Products:
    """The products of one graph; `made` are the constants of the new ones."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        ports = {value.name for value in graph.input}  # a constant among them is only what an input has when not given
        self.constants = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in ports}
        self.taken = names(graph)
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in filter(None, reads(node)):
                self.readers.setdefault(name, []).append(node)
        self.results = {value.name for value in graph.output}
        self.made: dict[str, onnx.TensorProto] = {}
        found = [one for node in graph.node if (one := self._product(node)) is not None]
        self.norms: dict[str, str] = {}
        self.fit = {one.end.output[0]: one for one in found if not one.loud or self._made_loud(one, found)}

    def instead(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """The product in the place of the node that ends it, and norms that leave x as it is."""
        if (gamma := self.norms.get(node.output[0])) is not None:
            louder = onnx.NodeProto.FromString(node.SerializeToString())
            louder.input[_NORMS[node.op_type]] = gamma
            yield louder
        elif (product := self.fit.get(node.output[0])) is not None:
            yield self._new(product)

    def _new(self, product: _Product) -> onnx.NodeProto:
        name, matrix = product.end.output[0], product.matrix
        arrays = {"codes": matrix.codes, **matrix.parameters()}
        placed = {part: self._constant(f"{name}/{part}", values) for part, values in arrays.items()}
        inputs = [product.x, placed["codes"], placed["scales"], placed.get("ends", ""), product.bias]
        while not inputs[-1]:
            inputs.pop()
        return helper.make_node("BlockProduct", inputs, [name], name=name, domain=DOMAIN, bits=matrix.bits,
                                centre=matrix.centre)  # fmt: skip

    def _constant(self, wanted: str, values: Array) -> str:
        """What a new constant is called: as `wanted`, unless something is."""
        name = free_name(wanted, self.taken)
        self.taken.add(name)
        self.made[name] = numpy_helper.from_array(values, name)
        return name

    def _array(self, name: str) -> Array | None:
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    def _shape(self, name: str) -> tuple[int, ...] | None:
        return tuple(self.constants[name].dims) if name in self.constants else None

    def _product(self, node: onnx.NodeProto) -> _Product | None:
        """The product that this MatMulNBits begins; None where it is another node, or a form that is left alone."""
        said = {one.name: one.i for one in node.attribute}
        if node.op_type != "MatMulNBits" or said.get("accuracy_level") != 4 or said.get("bits") not in (4, 8):
            return None
        x, _, _, _, groups, bias = [*node.input, *[""] * 6][:6]
        matrix = self._matrix(node, said)
        if groups or matrix is None or (bias and self._shape(bias) != (said["N"],)):
            return None
        return self._with_added(_Product(node, (node.output[0],), x, matrix, bias, {}))

    def _matrix(self, node: onnx.NodeProto, said: Mapping[str, int]) -> Matrix | None:
        """What MatMulNBits multiplies with, where it is constant and its blocks are made of ours."""
        given = [*node.input, ""][1:4]
        codes, scales, zeros = (self._array(name) for name in given)
        block, bits, rows = said["block_size"], said["bits"], said["N"]
        if codes is None or scales is None or (given[2] and zeros is None) or said["K"] % block:
            return None
        if scales.dtype != np.float32 or (zeros is not None and zeros.dtype != np.uint8):
            return None
        blocks = said["K"] // block
        sizes = [rows * blocks * block * bits // 8, rows * blocks, rows * ((blocks * bits + 7) // 8)]
        if any(one is not None and one.size != size for one, size in zip((codes, scales, zeros), sizes, strict=True)):
            return None
        return Matrix.read(bits, block, codes.reshape(rows, blocks, -1), scales, zeros)

    def _with_added(self, product: _Product) -> _Product | None:
        """The product with what the one Gemm behind it adds; None where that is something unknown."""
        name = product.end.output[0]
        behind = self.readers.get(name, [])
        if name in self.results or len(behind) != 1 or behind[0].op_type != "Gemm" or behind[0].input[2:] != [name]:
            return product
        gemm, maker = behind[0], self.makers.get(behind[0].input[0])
        added = self._array(gemm.input[1])
        plain = all(one.f == 1 if one.name in ("alpha", "beta") else one.i == 0 for one in gemm.attribute)
        if maker is None or added is None or not plain:
            return product
        sums, reader = self._sums(maker, product)
        if sums is None:
            return product
        return _added(product, gemm, reader, sums, added) or product

    def _sums(self, maker: onnx.NodeProto, product: _Product) -> tuple[Array | None, str]:
        """(f32[columns, n]: what x is multiplied by, the result of the node that reads x) of a first factor."""
        if maker.op_type == "MatMul" and maker.input[0] == product.x:
            return self._array(maker.input[1]), maker.output[0]
        if maker.op_type != "ReduceSum":
            return None, ""
        cut = self.makers.get(maker.input[0])
        shape = None if cut is None or cut.op_type != "Reshape" else self._array(cut.input[1])
        axes = self._array(maker.input[1]) if len(maker.input) > 1 else None
        if cut is None or shape is None or axes is None or cut.input[0] != product.x or axes.tolist() != [2]:
            return None, ""
        kept = [one.i for one in maker.attribute if one.name == "keepdims"] != [0]
        if kept or len(shape) != 3 or min(shape[1:]) < 1 or shape[1] * shape[2] != product.matrix.columns:
            return None, ""
        return np.repeat(np.eye(shape[1], dtype=np.float32), shape[2], axis=0), cut.output[0]

    def _made_loud(self, product: _Product, found: list[_Product]) -> bool:
        """Whether the norm that made x can leave it whole: everybody who reads x must want that."""
        norm = self.makers.get(product.x)
        if norm is None or norm.op_type not in _NORMS or norm.output[0] != product.x or product.x in self.results:
            return False
        if product.x in self.norms:
            return True
        theirs = [one for one in found if one.x == product.x]
        name = norm.input[_NORMS[norm.op_type]]
        gamma = self._array(name)
        if gamma is None or gamma.shape != (product.matrix.columns,) or any(one.loud != product.loud for one in theirs):
            return False
        if not self._only_read_by(theirs):
            return False
        whole = gamma.copy()
        for column, factor in product.loud.items():
            whole[column] *= np.float32(factor)
        self.norms[product.x] = self._constant(f"{name}/whole", whole)
        return True

    def _only_read_by(self, products: list[_Product]) -> bool:
        """Whether nobody but these products reads what they read, or anything between there and their results."""
        inner = {name for one in products for name in one.readers}
        ends = {one.end.output[0] for one in products}
        first = {node.output[0] for node in self.readers[products[0].x]}
        behind = {node.output[0] for name in inner - ends for node in self.readers.get(name, [])}
        return first <= inner and behind <= ends and not (inner - ends) & self.results


def _added(product: _Product, gemm: onnx.NodeProto, reader: str, sums: Array, added: Array) -> _Product | None:
    """The product with x·sums·added; None where that is more than offsets of blocks and whole loud columns."""
    matrix = product.matrix
    blocks = matrix.codes.shape[1]
    if sums.shape[0] != matrix.columns or added.shape != (sums.shape[1], len(matrix.codes)):
        return None
    offsets = sums.shape[1] >= blocks and np.count_nonzero(sums[:, 0]) > 1  # a column of `loud` has one
    rest = sums.shape[1] - (blocks if offsets else 0)
    loud = _loud_columns(sums, added, matrix, rest)
    if loud is None:
        return None
    expected = np.zeros_like(sums)
    if offsets:
        expected[np.arange(matrix.columns), np.arange(matrix.columns) // BLOCK] = 1
    for place, (column, factor) in enumerate(loud.items()):
        expected[column] *= factor
        expected[column, place - rest] = factor - 1
    if not np.array_equal(sums, expected):
        return None
    matrix = replace(matrix, offsets=np.ascontiguousarray(added[:blocks].T)) if offsets else matrix
    return replace(product, end=gemm, readers=(*product.readers, reader), matrix=matrix, loud=loud)


def _loud_columns(sums: Array, added: Array, matrix: Matrix, rest: int) -> dict[int, float] | None:
    """Column → factor of the last `rest` columns of `sums`, each of which adds one column of the matrix once more."""
    loud: dict[int, float] = {}
    for place in range(sums.shape[1] - rest, sums.shape[1]):
        rows = np.flatnonzero(sums[:, place])
        if len(rows) != 1 or not np.array_equal(added[place], matrix.column(int(rows[0]))):
            return None
        loud[int(rows[0])] = float(sums[rows[0], place]) + 1
    return loud
