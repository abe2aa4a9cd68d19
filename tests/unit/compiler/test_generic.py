# SPDX-License-Identifier: Apache-2.0
"""Family `onnx`: any graph onnxruntime runs, from file through package to answers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from dpfedge_cpu import CpuBackend
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from dpfedge.backend.api import Budget
from dpfedge.backend.registry import Registry
from dpfedge.binding import bind_here
from dpfedge.binding.bound import Bound
from dpfedge.binding.golden import require_golden
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.generic import import_graphs, unsign_products
from dpfedge.compiler.recipe import load_recipe
from dpfedge.errors import BackendError, ConfigError, ModelError, Unsupported
from dpfedge.package import open_package

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(3)
WEIGHT = RANDOM.standard_normal((24, 24)).astype(np.float32)
RECIPE = """\
name: any
version: "1"
models:
  net: {{family: onnx, source: "folder:.", licence: MIT{files}}}
"""


def value(name: str, dims: list[int | str], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """A port."""
    return helper.make_tensor_value_info(name, kind, dims)


def made(nodes: list[onnx.NodeProto], constants: Mapping[str, Array], opset: int = 20, *,
         inputs: list[onnx.ValueInfoProto] | None = None, outputs: list[onnx.ValueInfoProto] | None = None,
         ir: int = 8) -> onnx.ModelProto:  # fmt: skip
    """x f32[n,24] → y f32[n,24], unless told otherwise."""
    graph = helper.make_graph(
        nodes, "g", inputs or [value("x", ["n", 24])], outputs or [value("y", ["n", 24])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir)


def compiled(folder: Path, files: str = "") -> Bound:
    """The folder's model in a package, bound to this machine."""
    (folder / "any.yaml").write_text(RECIPE.format(files=files))
    registry = Registry()
    registry.add(CpuBackend())
    compile_package(load_recipe(folder / "any.yaml"), folder / "any.dpfbin", boards=["host"], registry=registry)
    return bind_here(open_package(folder / "any.dpfbin"), "host", registry=registry)


def plain(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """What onnxruntime answers for the file as it is."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]


def check(folder: Path, model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Bound:
    """Compile, pass the golden run, and answer as the file does."""
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    bound = compiled(folder)
    require_golden(bound)
    found = bound.model("net").load("main", Budget()).run(feeds)
    for name, wanted in zip(found, plain(model, feeds), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)
    return bound


X = RANDOM.standard_normal((3, 24)).astype(np.float32)


@pytest.mark.parametrize("opset", [7, 9, 13, 18, 28])
def test_onnx__opsets(tmp_path: Path, opset: int) -> None:
    """From the oldest opset with kernels to the newest; weights lie outside the graph."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    bound = check(tmp_path, made(nodes, {"w": WEIGHT}, opset), {"x": X})

    assert bound.targets[0].models["net"].graphs["main"].inputs[0].dims == ("n", 24)
    assert [section.kind for section in bound.package.manifest.sections].count("weights") == 1


def test_onnx__external_data(tmp_path: Path) -> None:
    """Weights beside the model end up in the package."""
    model = made([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": WEIGHT})
    wanted = plain(model, {"x": X})[0]
    onnx.save(model, str(tmp_path / "net.onnx"), save_as_external_data=True, location="net.bin", size_threshold=0)
    found = compiled(tmp_path).model("net").load("main", Budget()).run({"x": X})["y"]

    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def branches(weight: str) -> list[onnx.GraphProto]:
    """Two branches whose own weights have one name, and which both read `w` from outside."""
    graphs = []
    for index in range(2):
        nodes = [helper.make_node("MatMul", [weight, "w"], ["p"]), helper.make_node("MatMul", ["x", "p"], ["b"])]
        own = numpy_helper.from_array(WEIGHT * (index + 1), weight)
        graphs.append(helper.make_graph(nodes, f"branch{index}", [], [value("b", ["n", 24])], [own]))
    return graphs


def test_onnx__if_with_weights_of_one_name(tmp_path: Path) -> None:
    """Branches keep their own weights apart and read the outer graph's."""
    then, other = branches("mine")
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]  # fmt: skip
    model = made(nodes, {"w": WEIGHT, "zero": np.array(0, np.float32)}, outputs=[value("y", ["n", 24])])
    bound = check(tmp_path, model, {"x": X})
    run = bound.model("net").load("main", Budget())

    for x in (X, -X):
        np.testing.assert_allclose(run.run({"x": x})["y"], plain(model, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_onnx__loop_with_captured_weight(tmp_path: Path) -> None:
    """A loop's body reads a weight of the outer graph."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["a", "w"], ["b"]), helper.make_node("Identity", ["go"], ["on"])], "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("a", ["n", 24])],
        [value("on", [], TensorProto.BOOL), value("b", ["n", 24])],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["times", "yes", "x"], ["y"], body=body)]
    check(tmp_path, made(nodes, {"w": WEIGHT / 8, "times": np.array(3), "yes": np.array(True)}), {"x": X})


def test_onnx__int8(tmp_path: Path) -> None:
    """A quantised product of u8 and s8: the same integers, and the tolerance of 8-bit activations."""
    codes = RANDOM.integers(-128, 128, (24, 24), np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "c", "z"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["f", "s"], ["y"]),
    ]  # fmt: skip
    bound = check(tmp_path, made(nodes, {"c": codes}), {"x": X})

    assert any("golden=rel_l2≤0.05" in choice for choice, _ in bound.targets[0].decisions)


def test_unsign_products__same_integers() -> None:
    """u8 weights with a zero point of 128 (or 128 more) give the same sums, for every operator of the kind."""
    codes, zero = RANDOM.integers(-128, 128, (24, 8), np.int8), np.array(-3, np.int8)
    left = RANDOM.integers(0, 256, (5, 24), np.uint8)
    for constants, names in (({"c": codes}, ["x", "c"]), ({"c": codes, "k": zero}, ["x", "c", "", "k"])):
        ports = {"inputs": [value("x", [5, 24], TensorProto.UINT8)], "outputs": [value("y", [5, 8], TensorProto.INT32)]}
        model = made([helper.make_node("MatMulInteger", names, ["y"])], constants, **ports)
        wanted = left.astype(np.int32) @ (codes.astype(np.int32) - (0 if len(names) == 2 else -3))

        assert unsign_products(model) == 1
        assert {tensor.data_type for tensor in model.graph.initializer} == {TensorProto.UINT8}
        np.testing.assert_array_equal(plain(model, {"x": left})[0], wanted)


def test_unsign_products__shared_weights_stay() -> None:
    """What another node reads too is left as it is."""
    nodes = [helper.make_node("MatMulInteger", ["x", "c"], ["y"]), helper.make_node("Identity", ["c"], ["d"])]
    model = made(nodes, {"c": np.ones((4, 4), np.int8)})

    assert unsign_products(model) == 0
    assert model.graph.initializer[0].data_type == TensorProto.INT8


def test_onnx__several_graphs_and_ort_format(tmp_path: Path) -> None:
    """The recipe names the graphs; one of them is an ORT-format file, recognised by its content."""
    model = made([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": WEIGHT})
    (tmp_path / "one.onnx").write_bytes(model.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.optimized_model_filepath = str(tmp_path / "two.ort")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    bound = compiled(tmp_path, ", files: {first: one.onnx, second: two.ort}").model("net")

    assert set(bound.graphs) == {"first", "second"}
    for name in bound.graphs:
        np.testing.assert_allclose(bound.load(name, Budget()).run({"x": X})["y"], X @ WEIGHT, rtol=1e-4, atol=1e-5)


def test_onnx__int4_weights_stay_packed(tmp_path: Path) -> None:
    """Elements of half a byte lie in the package as the file has them; `mode` says how exact their products are."""
    data = RANDOM.integers(0, 256, 2048, np.uint8).tobytes()
    nodes = [helper.make_node("DequantizeLinear", ["c", "s"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = made(nodes, {"s": np.array(0.1, np.float32)}, 21, inputs=[value("x", ["n", 64])],
                 outputs=[value("y", ["n", 64])], ir=10)  # fmt: skip
    model.graph.initializer.append(helper.make_tensor("c", TensorProto.INT4, [64, 64], data, raw=True))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    rules = {}
    for mode in ("fast", "exact"):
        bound = compiled(tmp_path, f", mode: {mode}")
        require_golden(bound)
        rules[mode] = [choice for choice, _ in bound.targets[0].decisions if "golden" in choice]

    assert rules == {"fast": ["net.main: golden=rel_l2≤0.005"], "exact": ["net.main: golden=rel_l2≤0.001"]}


@pytest.mark.parametrize(("kind", "message"), [
    (TensorProto.STRING, "port x: a port must hold numbers of a dtype that links have; found STRING"),
    (TensorProto.FLOAT8E4M3FN, "port x: .*found FLOAT8E4M3FN; allowed f32"),
])  # fmt: skip
def test_onnx__ports_without_numbers(tmp_path: Path, kind: int, message: str) -> None:
    """What no link can carry is refused by name."""
    ports = {"inputs": [value("x", [2], kind)], "outputs": [value("y", [2], kind)]}
    (tmp_path / "net.onnx").write_bytes(
        made([helper.make_node("Identity", ["x"], ["y"])], {}, **ports, ir=10).SerializeToString()
    )
    with pytest.raises(Unsupported, match=message):
        compiled(tmp_path)


def test_onnx__refusals(tmp_path: Path) -> None:
    """No kernel for an opset, no output, a bad graph name, several files without names."""
    path = tmp_path / "net.onnx"
    path.write_bytes(made([helper.make_node("Add", ["x", "x"], ["y"], axis=0)], {}, 6).SerializeToString())
    with pytest.raises(BackendError, match=r"graph net\.main: .*Could not find an implementation for Add\(6\)"):
        compiled(tmp_path)
    model = made([helper.make_node("Identity", ["x"], ["y"])], {})
    del model.graph.output[:]
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="the graph has no output"):
        import_graphs({"main": path})
    with pytest.raises(ConfigError, match=r"any\.yaml:4: bad name of a graph; found \.\./x"):
        compiled(tmp_path, ', files: {"../x": net.onnx}')
    (tmp_path / "other.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match=r"several files for main; found net\.onnx, other\.onnx"):
        compiled(tmp_path)


SAMPLE = """
argmax_default_axis_example attention_4d averagepool_2d_same_upper basic_conv_with_padding clip_example
concat_2d_axis_0 convtranspose_1d cumsum_1d einsum_batch_matmul gather_elements_0 gelu_default_1
gemm_all_attributes gridsample_bilinear gru_defaults if instancenorm_example layer_normalization_4d_axis1 loop11 stft
lstm_defaults matmulinteger maxpool_2d_pads nonmaxsuppression_two_classes nonzero_example onehot_with_axis qlinearconv
batchnorm_example pow_types_int64_float32 resize_upsample_scales_nearest rms_normalization_2d_axis0
scan9_sum scatternd_add softmax_large_number split_variable_parts_1d_opset18 top_k where_long_example
"""


@pytest.fixture(scope="module")
def operators() -> Mapping[str, Any]:
    """ONNX's own test cases by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


@pytest.mark.parametrize("name", SAMPLE.split())
def test_onnx__operators(tmp_path: Path, operators: Mapping[str, Any], name: str) -> None:
    """One operator of each kind from ONNX's own tests; all of them run in tests/e2e."""
    case = operators[f"test_{name}"]
    inputs = case.data_sets[0][0]
    feeds = {port.name: np.asarray(array) for port, array in zip(case.model.graph.input, inputs, strict=True)}
    (tmp_path / "net.onnx").write_bytes(case.model.SerializeToString())
    found = compiled(tmp_path).model("net").load("main", Budget()).run(feeds)

    for port, wanted in zip(found, plain(case.model, feeds), strict=True):
        np.testing.assert_allclose(found[port], wanted, rtol=1e-3, atol=1e-5)
