# SPDX-License-Identifier: Apache-2.0
"""The judge of `dpfedge install`: signature, board, golden answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import BindError, SignatureError
from dpfedge.package import open_package
from dpfedge.signing import PrivateKey, sign_package
from dpfedge.store.approval import Approval

Make = Callable[..., Path]


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Boards that packages were bound to; every package fits every board."""
    boards: list[str] = []
    monkeypatch.setattr("dpfedge.binding.bind_here", lambda package, board: boards.append(board))
    return boards


def test_accept__signed_unsigned_revoked(make: Make, tmp_path: Path, bound: list[str]) -> None:
    """Without a trusted signature only where that is allowed; a revoked one never."""
    key, trust = PrivateKey.generate(), tmp_path / "trust"
    trust.mkdir()
    (trust / "oem.pub").write_bytes(key.public.pem())
    with open_package(make("1")) as package:
        with pytest.raises(SignatureError, match="the package is not signed"):
            Approval(trust=[trust]).accept(package)
        assert Approval(trust=[trust], allow_unsigned=True).accept(package) is None
        revoked = package.manifest_sha256.hex()
    sign_package(make("1"), [key], tmp_path / "signed")
    with open_package(tmp_path / "signed") as package:
        signer = Approval("orin", trust=[trust]).accept(package)
        assert signer is not None
        assert signer.name == "oem"
        (trust / "revoked.txt").write_text(f"{revoked}\n")
        with pytest.raises(SignatureError, match="this version of the package was revoked"):
            Approval(trust=[trust], allow_unsigned=True).accept(package)

    assert bound == ["auto", "orin"]


def test_accept__for_another_board(make: Make) -> None:
    """A package without a target fits nothing."""
    with open_package(make("1")) as package, pytest.raises(BindError, match="no target runs on board"):
        Approval(allow_unsigned=True).accept(package)


def test_prove__runs_what_there_is(make: Make, monkeypatch: pytest.MonkeyPatch, bound: list[str]) -> None:
    """No records, records, and an operator who wants none run."""
    with open_package(make("1")) as package:
        assert Approval(golden=False).prove(package) == "skipped"
        assert Approval().prove(package) == "none"
        toy: Any = type("Toy", (), {"manifest": type("M", (), {"golden": ({},)})})
        monkeypatch.setattr("dpfedge.binding.golden.require_golden", lambda bound: ("result",))

        assert Approval().prove(toy) == "passed"
