# SPDX-License-Identifier: Apache-2.0
"""What a skeleton can pass; a copy of it takes its entries off this list, one after the other."""

from dpfedge_null import NullBackend

from dpfedge.testing.backend_suite import BackendSuite

RUNS = ("op/*", "run", "dynamic_shapes", "link", "arena", "cache", "load_unload", "concurrent", "cancel", "errors",
        "priorities", "determinism")  # fmt: skip


class TestNull(BackendSuite):
    """All that needs no run."""

    backend = NullBackend()
    unsupported = dict.fromkeys(RUNS, "a skeleton runs nothing")
