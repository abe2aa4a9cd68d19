# SPDX-License-Identifier: Apache-2.0
"""Backend rocm against the suite for backends."""

from dpfedge_rocm import RocmBackend
from dpfedge_rocm.verify import OPS, UNSUPPORTED

from dpfedge.testing.backend_suite import BackendSuite


class TestRocm(BackendSuite):
    """All of it."""

    backend = RocmBackend()
    ops = OPS
    unsupported = UNSUPPORTED
