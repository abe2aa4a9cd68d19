# SPDX-License-Identifier: Apache-2.0
"""PP-OCR models: bytes of RGB in give what the file's own graph gives for normalised BGR."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dpfedge.compiler.buckets import with_buckets
from dpfedge.compiler.families import FAMILIES, Options
from dpfedge.compiler.ocr import build_detector, build_reader
from dpfedge.compiler.samples import samples
from dpfedge.errors import ModelError
from dpfedge.tensors import TensorSpec

RANDOM = np.random.default_rng(6)
CHARACTERS = "ab\nc\u2028\n\U0001f6c5"


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """Random values."""
    return numpy_helper.from_array(RANDOM.standard_normal(shape).astype(np.float32), name)


def model(kind: str, *, opset: int = 11, characters: str | None = CHARACTERS) -> onnx.ModelProto:
    """A detector of one convolution, or a reader of one convolution as high as a line, with five classes."""
    node, info = helper.make_node, helper.make_tensor_value_info
    if kind == "detect":
        nodes = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Sigmoid", ["c"], ["y"])]
        ports, constants = (["n", 3, "h", "w"], ["n", 1, "h", "w"]), [weight("w", 1, 3, 3, 3)]
    else:
        squeeze = [] if opset < 13 else [numpy_helper.from_array(np.array([2], np.int64), "two")]
        nodes = [
            node("Conv", ["x", "w"], ["c"], kernel_shape=[48, 8], strides=[1, 8]),
            node("Squeeze", ["c"], ["d"], axes=[2]) if opset < 13 else node("Squeeze", ["c", "two"], ["d"]),
            node("Transpose", ["d"], ["e"], perm=[0, 2, 1]),
            node("Softmax", ["e"], ["y"], axis=2),
        ]
        ports, constants = (["n", 3, 48, "w"], ["n", "t", 5]), [weight("w", 5, 3, 48, 8), *squeeze]
    f32 = TensorProto.FLOAT
    graph = helper.make_graph(nodes, kind, [info("x", f32, ports[0])], [info("y", f32, ports[1])], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    if characters is not None:
        helper.set_model_props(made, {"character": characters})
    return made


def run(made: onnx.ModelProto, value: np.ndarray) -> np.ndarray:
    """The only output."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: value})[0])


def normalised(image: np.ndarray) -> np.ndarray:
    """What the file's own graph is fed: planes of BGR, mean and deviation 0.5."""
    return ((image[:, :, ::-1] / 255 - 0.5) / 0.5).astype(np.float32).transpose(2, 0, 1)[None]


@pytest.mark.parametrize("opset", [11, 17])
def test_detector__reads_rgb_bytes(opset: int) -> None:
    """Colours are in the order of a camera, values are bytes, and there is no batch."""
    frame = RANDOM.integers(0, 256, (32, 64, 3), np.uint8)
    source = model("detect", opset=opset)

    found = run(build_detector(source, "x"), frame)

    np.testing.assert_allclose(found, run(source, normalised(frame))[0, 0], atol=1e-5)


@pytest.mark.parametrize("opset", [11, 17])
def test_reader__reads_rgb_bytes(opset: int) -> None:
    """Every row is a step's shares; characters keep whatever is not a line feed, and the space is the last."""
    line = RANDOM.integers(0, 256, (48, 40, 3), np.uint8)
    source = model("read", opset=opset)

    graph, characters = build_reader(source, "x")

    np.testing.assert_allclose(run(graph, line), run(source, normalised(line))[0], atol=1e-5)
    assert characters == ["ab", "c\u2028", "\U0001f6c5", " "]


@pytest.mark.parametrize(("characters", "message"), [(None, "no list of characters"), ("a\nb", "not this model's")])
def test_reader__other_characters(characters: str | None, message: str) -> None:
    """Without a list, or with one of another length, no class has a text."""
    with pytest.raises(ModelError, match=message):
        build_reader(model("read", characters=characters), "x")


def test_other_models__are_refused() -> None:
    """A reader is no detector, and a first layer that is no convolution cannot take RGB."""
    with pytest.raises(ModelError, match=r"not a PP-OCR model; found \[0, 3, 48, 0\] → rank 3; allowed f32"):
        build_detector(model("read"), "x")
    other = model("detect")
    other.graph.node[0].CopyFrom(helper.make_node("Relu", ["x"], ["c"]))
    with pytest.raises(ModelError, match="input read by Relu; allowed one convolution"):
        build_detector(other, "x")
    shared = model("detect")
    shared.graph.node.append(helper.make_node("Conv", ["y", "w"], ["z"]))
    with pytest.raises(ModelError, match="w used twice"):
        build_detector(shared, "x")
    two = model("detect")
    two.graph.input.append(two.graph.input[0])
    with pytest.raises(ModelError, match="allowed one input, one output"):
        build_detector(two, "x")


def test_families__config_assets_and_buckets(tmp_path: Path) -> None:
    """Both families have what GRAPHS.md says, and fixed shapes where a backend wants them."""
    path = tmp_path / "m.onnx"
    path.write_bytes(model("read").SerializeToString())
    reader = FAMILIES["ppocr-read"].load({"model": path}, Options())
    path.write_bytes(model("detect").SerializeToString())
    detector = FAMILIES["ppocr-detect"].load({"model": path}, Options())

    assert reader.config["classes"] == len(reader.assets["characters.txt"].split(b"\n")) + 1 == 5
    assert (reader.config["height"], reader.config["step"], detector.config["multiple"]) == (48, 8, 32)
    fixed = with_buckets(detector, {"height": [64], "width": [64, 96]}, dynamic=False, where="x")
    assert list(fixed.graphs) == ["detect@height-64@width-64", "detect@height-64@width-96"]
    assert list(with_buckets(reader, {"width": [320]}, dynamic=False, where="x").graphs) == ["read@width-320"]


def test_samples__are_pictures_of_the_graphs_size() -> None:
    """Dark on light; a fixed shape is kept."""
    any_size = samples("ppocr-detect", "detect", (TensorSpec("frame", "u8", ("height", "width", 3)),), {}, {}, 0)
    line = samples("ppocr-read", "read", (TensorSpec("line", "u8", (48, "width", 3)),), {}, {}, 0)

    frame = any_size[0].feeds["frame"]
    assert (frame.shape, frame.dtype, line[0].feeds["line"].shape) == ((96, 96, 3), np.uint8, (48, 96, 3))
    assert frame.min() == 40
    assert frame.max() > 200
