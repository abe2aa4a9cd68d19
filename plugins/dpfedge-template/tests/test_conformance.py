# SPDX-License-Identifier: Apache-2.0
"""The whole test of a backend."""

from dpfedge_template import TemplateBackend

from dpfedge.testing.backend_suite import BackendSuite


class TestTemplate(BackendSuite):
    """All of it."""

    backend = TemplateBackend()
    ops = ("Add/f*", "Sub/f*", "Mul/f*", "MatMul/f*", "MatMul-*", "Relu/*", "Tanh/*", "Exp/*")
    unsupported = {"cancel": "NumPy's calls cannot be ended", "cache": "it has no attention"}  # noqa: RUF012
