# SPDX-License-Identifier: Apache-2.0
"""Backend cpu against the suite for backends."""

from dpfedge_cpu import CpuBackend

from dpfedge.testing.backend_suite import BackendSuite


class TestCpu(BackendSuite):
    """All of it."""

    backend = CpuBackend()
