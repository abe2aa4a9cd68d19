# SPDX-License-Identifier: Apache-2.0
"""Backend rocm against the suite for backends."""

from dpfedge_rocm import RocmBackend

from dpfedge.testing.backend_suite import BackendSuite


class TestRocm(BackendSuite):
    """All of it."""

    backend = RocmBackend()
    unsupported = {  # noqa: RUF012
        "cancel": "a compiled program cannot be ended on its way",
        "arena": "inputs and outputs are copied to the GPU's memory",
    }
