# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin for the emulated userland: fewer and slower examples, and the tests an emulator cannot pass, by name.

Nothing is left out in silence: each gets a skip with its reason. With DPF_KERNEL=booted a real kernel answers, not
qemu-user, and every test is fit.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence

import hypothesis
import pytest

_NO_READV = "qemu-user has no process_vm_readv, so packed weights are not shared"
_NO_LIMIT = "qemu-user keeps no limit of the address space for its guest"
_HOST_PAGES = "qemu-user pretends the page size: mincore answers for the machine's pages of 4 KiB"
_NO_MAPS = "qemu-user pretends the page size: its /proc/self/maps leaves out files smaller than that"
UNFIT: Mapping[str, str] = {
    "test_seal__an_image_of_the_packed_pages": _NO_READV,
    "test_load__shared_pages_change_no_bit": _NO_READV,
    "test_load__of_other_weights_shares_nothing": _NO_READV,
    "test_load__an_image_that_lies_outside_of_its_file": _NO_READV,
    "test_load_shared__a_load_that_fails": _NO_READV,
    "test_load__what_was_not_sealed_by_this_backend": _NO_READV,
    "test_share__leaves_pages_that_differ": _NO_READV,
    "test_share__repeated_pages": _NO_READV,
    "test_share__memory_given_back_meanwhile": _NO_READV,
    "test_collect__nothing_to_share": _NO_READV,
    "test_collect__memory_freed_between_the_loads_is_not_packed_into": _NO_READV,
    "test_another_allocator": _NO_READV,
    "test_available__counts_the_address_space": _NO_LIMIT,
    "test_attach__without_address_space": _NO_LIMIT,
}
"""Name of a test or of its file → why an emulator cannot run it."""
UNFIT_PAGES: Mapping[str, str] = {
    "test_residency": _HOST_PAGES,
    "test_open__reads_header_and_manifest_only": _HOST_PAGES,
    "test_in_use__finds_mapped_and_open_files": _NO_MAPS,
    "test_remove__deletes_what_nobody_uses": _NO_MAPS,
    "test_create__slots_on_pages": "qemu-user pretends the page size: mmap gives addresses on pages of 4 KiB",
}
"""The same where the page size is not the machine's."""

hypothesis.settings.register_profile(
    "emulated", max_examples=15, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)


def pytest_configure(config: pytest.Config) -> None:
    """Before the tests are imported."""
    hypothesis.settings.load_profile("emulated")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Skips, each with its reason."""
    if os.environ.get("DPF_KERNEL") == "booted":
        return
    unfit = {**UNFIT, **(UNFIT_PAGES if mmap.PAGESIZE != 4096 else {})}
    for item in items:
        reason = unfit.get(item.name.partition("[")[0], unfit.get(item.path.stem))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"emulated: {reason}"))
