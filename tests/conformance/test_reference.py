# SPDX-License-Identifier: Apache-2.0
"""Backend reference against the suite for backends."""

from dpfedge_reference import ReferenceBackend
from dpfedge_reference.verify import UNSUPPORTED

from dpfedge.testing.backend_suite import BackendSuite


class TestReference(BackendSuite):
    """All of it."""

    backend = ReferenceBackend()
    unsupported = UNSUPPORTED
