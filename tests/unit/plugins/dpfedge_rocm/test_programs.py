# SPDX-License-Identifier: Apache-2.0
"""Compiled programs to the seal and back, with a provider that compiles anew without a word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dpfedge_rocm.programs import collect, sealed_folder

from dpfedge.backend.api import SealedView
from dpfedge.errors import BackendError

NAME = "20c0d-1a2b-3c4d-5e6f.mxr"


def fake_provider(folder: str, *, name: str = NAME, compiles: bool = False) -> str:
    """As the provider does: loads the program, or else compiles one and keeps it under its own name."""
    path = Path(folder, name)
    if path.exists() and not compiles:
        return path.read_bytes().decode()
    path.unlink(missing_ok=True)
    path.write_bytes(b"compiled")
    return "compiled"


def sealed(name: str = NAME) -> dict[str, SealedView]:
    """What the sidecar holds."""
    return {name: SealedView(memoryview(b"sealed"), -1, 0)}


def test_collect__is_what_was_compiled() -> None:
    """Bytes of each program by its name; the folder is gone."""
    places: list[str] = []
    found = collect("g", lambda folder: (places.append(folder), fake_provider(folder)))

    assert {name: b"".join(np.asarray(part).tobytes() for part in parts) for name, parts in found.items()} == {
        NAME: b"compiled"
    }
    assert not Path(places[0]).exists()


def test_collect__of_a_provider_that_keeps_nothing() -> None:
    """An older one has no such option."""
    with pytest.raises(BackendError, match="graph g: MIGraphX compiled the graph and kept no program"):
        collect("g", lambda folder: None)


def test_sealed__program_is_used() -> None:
    """From a folder of its own that is gone afterwards."""
    assert sealed_folder("g", sealed(), fake_provider) == "sealed"


@pytest.mark.parametrize("change", [{"name": "other.mxr"}, {"compiles": True}])
def test_sealed__program_that_was_not_used_is_an_error(change: dict[str, object]) -> None:
    """Under another name, or over the old one: both without a word from the provider."""
    with pytest.raises(BackendError, match=r"graph g: the sealed programs are not those .* was compiled anew; run"):
        sealed_folder("g", sealed(), lambda folder: fake_provider(folder, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../x.mxr", "/etc/x.mxr", "x.so", ""])
def test_sealed__name_that_is_no_programs(name: str) -> None:
    """A sidecar names files, and none outside the folder."""
    with pytest.raises(BackendError, match="is no program's name"):
        sealed_folder("g", sealed(name), fake_provider)
