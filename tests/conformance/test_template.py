# SPDX-License-Identifier: Apache-2.0
"""The whole test of a backend."""

from dpfedge_template import TemplateBackend
from dpfedge_template.verify import OPS, UNSUPPORTED

from dpfedge.testing.backend_suite import BackendSuite


class TestTemplate(BackendSuite):
    """All of it."""

    backend = TemplateBackend()
    ops = OPS
    unsupported = UNSUPPORTED
