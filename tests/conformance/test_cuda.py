# SPDX-License-Identifier: Apache-2.0
"""Backend cuda against the suite for backends; without an NVIDIA GPU each test is skipped with the backend's reason."""

from dpfedge_cuda import CudaBackend
from dpfedge_cuda.verify import EXPECTED, UNSUPPORTED

from dpfedge.testing.backend_suite import BackendSuite


class TestCuda(BackendSuite):
    """All of it, but what onnxruntime's CUDA provider has no kernel for."""

    backend = CudaBackend()
    unsupported = UNSUPPORTED
    expected_failures = EXPECTED
