# SPDX-License-Identifier: Apache-2.0
"""Which way of sharing memory is taken; drivers that lie are in `test_bad_driver.py`."""

from __future__ import annotations

import pytest
from dpfedge_opencl.memory import UseHostPtr
from dpfedge_opencl.probing import VARIABLE, choose, sees_own_pages
from made_plans import runtime

from dpfedge.errors import BackendError, UsageError


def test_choose__what_the_environment_or_a_seal_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment before a seal; a name that is no way, or one that the driver lacks, is an error."""
    here = runtime()
    assert choose(here, "alloc_host_ptr").name == "alloc_host_ptr"
    with pytest.raises(BackendError, match="found import"):
        choose(here, "import")
    monkeypatch.setenv(VARIABLE, "alloc_host_ptr")
    assert choose(here, "use_host_ptr").name == "alloc_host_ptr"
    monkeypatch.setenv(VARIABLE, "magic")
    with pytest.raises(UsageError, match="use_host_ptr"):
        choose(here)


def test_probe__of_a_cpu() -> None:
    """A driver for CPUs works in our pages: that is seen, not believed."""
    here = runtime()
    if not here.facts.cpu:
        pytest.skip("not a CPU")
    assert sees_own_pages(here, UseHostPtr(here.context, here.where))
    assert choose(here).in_place
