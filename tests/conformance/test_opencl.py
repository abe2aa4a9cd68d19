# SPDX-License-Identifier: Apache-2.0
"""Backend opencl against the suite for backends, on the first OpenCL device of this machine."""

from dpfedge_opencl import OpenClBackend

from dpfedge.testing.backend_suite import BackendSuite


class TestOpenCl(BackendSuite):
    """All of it."""

    backend = OpenClBackend()
