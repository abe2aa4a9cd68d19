# SPDX-License-Identifier: Apache-2.0
"""Backend jetson against the suite for backends: the GPU; a DLA's graphs are those of `dpfedge_jetson.verify`."""

from dpfedge_jetson import JetsonBackend
from dpfedge_jetson.verify import EXPECTED, UNSUPPORTED

from dpfedge.testing.backend_suite import BackendSuite


class TestJetson(BackendSuite):
    """All of it."""

    backend = JetsonBackend()
    unsupported = UNSUPPORTED
    expected_failures = EXPECTED
