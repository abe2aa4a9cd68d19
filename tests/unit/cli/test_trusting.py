# SPDX-License-Identifier: Apache-2.0
"""What verbs share about trust: flags, passphrases, and the words for a signature."""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpfedge.cli.trusting import PASSPHRASE, add_trust_arguments, ask_passphrase, load_key, shown, trust_options
from dpfedge.errors import UsageError
from dpfedge.signing import Finding, PrivateKey


def test_flags__become_options() -> None:
    """Nothing given is nothing allowed, and the default directories."""
    parser = argparse.ArgumentParser()
    add_trust_arguments(parser)

    assert trust_options(parser.parse_args([])) == {"allow_unsigned": False, "trust": None}
    given = parser.parse_args(["--allow-unsigned", "--trust", "a", "--trust", "b"])
    assert trust_options(given) == {"allow_unsigned": True, "trust": [Path("a"), Path("b")]}


def test_load_key__with_the_passphrase_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked on the terminal otherwise; without one it is a usage error that names the variable."""
    key, path = PrivateKey.generate(), tmp_path / "k.key"
    key.save(path, b"swordfish")
    monkeypatch.setenv(PASSPHRASE, "swordfish")
    assert load_key(path).public == key.public

    monkeypatch.delenv(PASSPHRASE)
    asked: list[str] = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(getpass, "getpass", lambda prompt: asked.append(prompt) or "swordfish")
    assert load_key(path).public == key.public
    assert asked == [f"passphrase of {path}: "]

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    with pytest.raises(UsageError, match=f"the key needs a passphrase; set {PASSPHRASE}"):
        load_key(path)


def test_ask__an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is none."""
    monkeypatch.setenv(PASSPHRASE, "")
    with pytest.raises(UsageError, match="the passphrase is empty"):
        ask_passphrase("x")


def test_shown__a_line_for_each() -> None:
    """With the name where the trust directory has one."""
    assert list(shown([])) == ["no signature"]
    assert list(shown([Finding("ab", "oem", "trusted"), Finding("cd", "", "unknown")])) == [
        "signature of oem (ab): trusted", "signature of cd: unknown",
    ]  # fmt: skip
