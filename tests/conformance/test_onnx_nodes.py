# SPDX-License-Identifier: Apache-2.0
"""The ONNX project's own operator tests on every backend that runs graphs; `pytest -s` prints the table."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from dpfedge_cpu import CpuBackend
from dpfedge_reference import ReferenceBackend

from dpfedge.backend.api import Backend
from dpfedge.testing.onnx_nodes import node_tests, table

# test → why the answer is another one; an entry that no test needs any more fails
CPU = {
    "test_attention_4d_causal_fp16": "onnxruntime rounds half precision at another place: one unit in the last",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_*_mask_causal": "-inf in masked scores",
    "test_dft*": "onnxruntime sums in another order, and 1e-7 is asked where a sum is near zero",
    "test_stft*": "as test_dft",
    "test_maxunpool_export_with_output_shape": "onnxruntime takes indices as those of the given shape",
    "test_resize_downsample_scales_*_align_corners": "onnxruntime rounds the output size before it aligns corners",
}
REFERENCE = {
    "test_range_*_expanded": "onnx.reference keeps an axis of one in a scan output of Loop",
}


@pytest.mark.parametrize(
    ("backend", "known", "least"), [(CpuBackend(), CPU, 1500), (ReferenceBackend(), REFERENCE, 1590)],
    ids=["cpu", "reference"],
)  # fmt: skip
def test_node_tests__of_onnx(backend: Backend, known: Mapping[str, str], least: int) -> None:
    """No wrong answer but the known ones, every known one still wrong, and no operator silently gone."""
    outcomes = list(node_tests(backend, backend.devices(Path("/"))[0]))
    print("", backend.name, *table(outcomes), sep="\n")
    wrong = {one.test: one.reason for one in outcomes if one.state == "wrong"}
    unknown = {test: reason for test, reason in wrong.items() if not any(fnmatchcase(test, key) for key in known)}

    assert unknown == {}
    assert [key for key in known if not any(fnmatchcase(test, key) for test in wrong)] == []
    assert sum(one.state in ("right", "any") for one in outcomes) >= least
