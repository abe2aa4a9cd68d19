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


def test_ask__one_that_no_key_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too long a one is refused; bytes that are no text are as good as others."""
    monkeypatch.setenv(PASSPHRASE, "x" * 1024)
    with pytest.raises(UsageError, match="the passphrase is too long; allowed at most 1023 bytes"):
        ask_passphrase("x")
    monkeypatch.setenv(PASSPHRASE, "x" * 1023)
    PrivateKey.generate().save(tmp_path / "k.key", ask_passphrase("x"))
    monkeypatch.setenv(PASSPHRASE, "\udcff")
    assert ask_passphrase("x") == b"\xff"


def test_ask__a_new_one_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip of the finger must not lock a key for ever; the end of the input is no traceback."""
    monkeypatch.delenv(PASSPHRASE, raising=False)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    typed = iter(["swordfish", "swordfish", "swordfish", "swordfihs"])
    monkeypatch.setattr(getpass, "getpass", lambda prompt: next(typed))

    assert ask_passphrase("x", twice=True) == b"swordfish"
    with pytest.raises(UsageError, match="the two passphrases differ; try again"):
        ask_passphrase("x", twice=True)

    def end(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr(getpass, "getpass", end)
    with pytest.raises(UsageError, match="no passphrase was typed"):
        ask_passphrase("x")


def test_shown__a_line_for_each() -> None:
    """With the name where the trust directory has one."""
    assert list(shown([])) == ["no signature"]
    assert list(shown([Finding("ab", "oem", "trusted"), Finding("cd", "", "unknown")])) == [
        "signature of oem (ab): trusted", "signature of cd: unknown",
    ]  # fmt: skip
