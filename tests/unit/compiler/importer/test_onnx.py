# SPDX-License-Identifier: Apache-2.0
"""The ONNX importer: versions, domains, and external data that stays in the model's folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dpfedge.compiler.importer.onnx import import_onnx
from dpfedge.compiler.nodes import Nodes
from dpfedge.errors import ModelError
from dpfedge.tensors import TensorSpec

WEIGHT = np.arange(16, dtype=np.float32)


def model(opset: int = 20, ir: int = 10, domain: str = "") -> onnx.ModelProto:
    """y = x + w."""
    nodes = Nodes("g")
    nodes.add("Add", ["x", nodes.constant("w", WEIGHT)], "y", domain=domain)
    made = nodes.model([TensorSpec("x", "f32", (16,))], [TensorSpec("y", "f32", (16,))])
    made.opset_import[0].version, made.ir_version = opset, ir
    return made


def write(folder: Path, made: onnx.ModelProto) -> Path:
    """Save as it is."""
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def external(folder: Path, location: str, offset: str = "0", length: str = "64") -> Path:
    """The model with its weight in another file."""
    made = model()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=text)
    return write(folder, made)


def test_import_onnx__external_data_inside(tmp_path: Path) -> None:
    """Bytes from a file beside the model end up in the model."""
    (tmp_path / "w.bin").write_bytes(bytes(64) + WEIGHT.tobytes())

    made = import_onnx(external(tmp_path, "w.bin", offset="64"))

    np.testing.assert_array_equal(numpy_helper.to_array(made.graph.initializer[0]), WEIGHT)
    assert not made.graph.initializer[0].external_data


@pytest.mark.parametrize("location", ["../w.bin", "../../etc/passwd", "/etc/passwd", "", "sub/../../w.bin"])
def test_import_onnx__external_data_outside(tmp_path: Path, location: str) -> None:
    """No location leaves the model's folder."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(64))

    with pytest.raises(ModelError, match="external data lies outside the model's folder"):
        import_onnx(external(folder, location))


def test_import_onnx__external_data_links(tmp_path: Path) -> None:
    """Symbolic links out and hard links are refused."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(64))
    (folder / "soft.bin").symlink_to(tmp_path / "w.bin")
    os.link(tmp_path / "w.bin", folder / "hard.bin")

    with pytest.raises(ModelError, match="outside the model's folder"):
        import_onnx(external(folder, "soft.bin"))
    with pytest.raises(ModelError, match="no plain file of its own"):
        import_onnx(external(folder, "hard.bin"))


def test_import_onnx__external_data_cut(tmp_path: Path) -> None:
    """A file that is too short is refused with both sizes; a number that is none too."""
    (tmp_path / "w.bin").write_bytes(bytes(60))

    with pytest.raises(ModelError, match=r"expected 64 bytes, have 60"):
        import_onnx(external(tmp_path, "w.bin"))
    with pytest.raises(ModelError, match="external data offset is no number; found -4"):
        import_onnx(external(tmp_path, "w.bin", offset="-4"))


@pytest.mark.parametrize(("opset", "ir", "text"), [
    (0, 10, r"unsupported opset; found 0; allowed 1 to 28 \(onnxruntime 1\.\d+\.\d+\); export it again$"),
    (29, 10, r"unsupported opset; found 29; allowed 1 to 28 \(onnxruntime .*\); export it again, or upgrade"),
    (20, 15, r"unsupported IR version; found 15; allowed 3 to 14 \(onnxruntime .*\); export it again, or upgrade"),
    (20, 2, "unsupported IR version; found 2; allowed 3 to 14"),
])  # fmt: skip
def test_import_onnx__versions(tmp_path: Path, opset: int, ir: int, text: str) -> None:
    """Versions the installed onnxruntime cannot run are found here, with both numbers and its own version."""
    with pytest.raises(ModelError, match=text):
        import_onnx(write(tmp_path, model(opset, ir)))


def test_import_onnx__versions_a_newer_onnxruntime_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this was written for is no limit: the installed onnxruntime is asked."""
    monkeypatch.setattr("dpfedge.compiler.importer.onnx.OPSET_MAX", 20)
    monkeypatch.setattr("dpfedge.compiler.importer.onnx.IR_MAX", 9)

    assert import_onnx(write(tmp_path, model(28, 14))).ir_version == 14
    with pytest.raises(ModelError, match="found 29; allowed 1 to 28"):
        import_onnx(write(tmp_path, model(29, 14)))


def test_import_onnx__other_domains_only(tmp_path: Path) -> None:
    """A model without standard operators needs no opset of theirs; operators of its own functions are known."""
    made = model(domain="ai.onnx.ml")
    made.opset_import[0].domain = "ai.onnx.ml"
    assert import_onnx(write(tmp_path, made)).opset_import[0].domain == "ai.onnx.ml"
    made = model(domain="mine")
    body = [helper.make_node("Add", ["a", "b"], ["c"])]
    made.functions.append(helper.make_function("mine", "Add", ["a", "b"], ["c"], body, [helper.make_opsetid("", 20)]))
    assert import_onnx(write(tmp_path, made)).functions[0].domain == "mine"


def test_import_onnx__external_data_everywhere(tmp_path: Path) -> None:
    """Tensors in attributes, also those of branches, are confined as initialisers are."""
    value = numpy_helper.from_array(WEIGHT, "value")
    value.ClearField("raw_data")
    value.data_location = onnx.TensorProto.EXTERNAL
    value.external_data.add(key="location", value="w.bin")
    branch = helper.make_graph([helper.make_node("Constant", [], ["y"], value=value)], "branch", [],
                               [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [16])])  # fmt: skip
    made = model()
    made.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch))
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())

    loaded = import_onnx(write(tmp_path, made)).graph.node[1].attribute[0].g.node[0].attribute[0].t

    np.testing.assert_array_equal(numpy_helper.to_array(loaded), WEIGHT)
    value.external_data[0].value = "../w.bin"
    made.graph.node.append(helper.make_node("Constant", [], ["k"], value=value))
    with pytest.raises(ModelError, match=r"tensor value: external data lies outside"):
        import_onnx(write(tmp_path, made))


def test_import_onnx__external_data_missing(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(ModelError, match=r"tensor w: external data is missing; found gone\.bin; allowed a file below"):
        import_onnx(external(tmp_path, "gone.bin"))


def test_import_onnx__newest_versions(tmp_path: Path) -> None:
    """The limits themselves are accepted."""
    assert import_onnx(write(tmp_path, model(28, 14))).opset_import[0].version == 28


def test_import_onnx__foreign_domain(tmp_path: Path) -> None:
    """An operator domain nobody has is named."""
    with pytest.raises(ModelError, match=r"operators of an unknown domain; found acme\.ops"):
        import_onnx(write(tmp_path, model(domain="acme.ops")))


def test_import_onnx__not_onnx(tmp_path: Path) -> None:
    """Other bytes, a cut file and an empty one are refused."""
    path = tmp_path / "model.onnx"
    for data in (b"\xff\xfe\xfd", model().SerializeToString()[:40], b""):
        path.write_bytes(data)
        with pytest.raises(ModelError, match=r"model\.onnx"):
            import_onnx(path)
