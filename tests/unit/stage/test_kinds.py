# SPDX-License-Identifier: Apache-2.0
"""Stage kinds: the built-in ones, those of distributions, and classes beside a pipeline file."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.errors import ConfigError
from dpfedge.stage.kinds import BUILT_IN, find_kind
from dpfedge.stage.ports import Ports

CODE = """
from dpfedge.stage.each import Each
from dpfedge.stage.ports import Port, Ports
class Double(Each):
    ports = Ports({"numbers": Port("f32")}, {"doubled": Port("f32")})
class Loud(Each):
    SCHEMA = {"type": "object", "properties": {"gain": {"type": "number"}}}
    @staticmethod
    def ports(config, model):
        return Ports({}, {name: Port("f32") for name in config["names"]})
class NoStage:
    pass
"""


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_built_in__has_ports_settings_and_a_class(name: str) -> None:
    """Under its own name."""
    kind = find_kind(name, where="x")

    assert isinstance(kind.ports({}, {"rate": 22050}), Ports)
    assert (kind.schema() or {})["additionalProperties"] is False
    assert kind.load().name in (name, name.replace("-", "_"))  # type: ignore[attr-defined]


def test_class__beside_the_file(tmp_path: Path) -> None:
    """Ports as an attribute, or as a function of the settings."""
    (tmp_path / "stages.py").write_text(CODE)

    double = find_kind("stages:Double", where="x", folder=tmp_path)
    loud = find_kind("stages:Loud", where="x", folder=tmp_path)

    assert set(double.ports({}, None).outputs) == {"doubled"}
    assert set(loud.ports({"names": ["a", "b"]}, None).outputs) == {"a", "b"}
    assert loud.schema() == {"type": "object", "properties": {"gain": {"type": "number"}}}
    assert double.schema() is None
    assert double.load() is find_kind("stages:Double", where="x", folder=tmp_path).load()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stages:Tripple", "the module has no such class; found stages:Tripple"),
        ("stages:NoStage", "the stage has no ports"),
        ("other:Double", "no such module beside the pipeline file"),
        ("../stages:Double", "no such module"),
        ("decodr", "unknown stage kind; found decodr; allowed decoder.*did you mean decoder"),
    ],
)
def test_kind__that_is_not_there(tmp_path: Path, name: str, words: str) -> None:
    """The refusal says what there is."""
    (tmp_path / "stages.py").write_text(CODE)

    with pytest.raises(ConfigError, match=words):
        find_kind(name, where="x", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lib:X", r"x: the code of the stage cannot be imported; found lib:X: ModuleNotFoundError: .* no other module"),
        ("half:X", r"found half:X: SyntaxError"),
        ("ends:X", r"found ends:X: SystemExit: 3 \(ends.py, line 1\)"),
        (
            "odd:Raises",
            r"the code of the stage cannot say its ports; found odd:Raises: KeyError: 'no' \(odd.py, line 5\)",
        ),
        ("odd:Five", r"the stage has no ports; found odd:Five makes int; allowed Ports"),
    ],
)
def test_class__whose_code_is_wrong(tmp_path: Path, name: str, words: str) -> None:
    """Where, what it raised, and on which line; never a traceback."""
    (tmp_path / "lib.py").write_text("import odd\n")
    (tmp_path / "half.py").write_text("def (\n")
    (tmp_path / "ends.py").write_text("raise SystemExit(3)\n")
    lines = ("class Five:", "    ports = lambda config, model: 5", "class Raises:", "    def ports(config, model):")
    (tmp_path / "odd.py").write_text("\n".join((*lines, "        return config['no']")))
    with pytest.raises(ConfigError, match=words):
        find_kind(name, where="x", folder=tmp_path).ports({}, None)


def test_class__of_a_package() -> None:
    """A package is data: what it runs is installed, or part of dpfedge."""
    with pytest.raises(ConfigError, match=r"a package names no code of its own.*entry point"):
        find_kind("stages:Double", where="x")


def test_entry_points__are_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a name is taken, two are refused with both distributions."""
    point = SimpleNamespace(name="mine", load=lambda: SimpleNamespace(ports=Ports()), dist=SimpleNamespace(name="a"))
    twin = SimpleNamespace(**{**vars(point), "dist": SimpleNamespace(name="b")})
    there: list[Any] = [point]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group, name=None: there)

    assert find_kind("mine", where="x").name == "mine"
    there.append(twin)
    with pytest.raises(ConfigError, match="two distributions offer the kind; found mine in a and b"):
        find_kind("mine", where="x")


def test_ports__of_the_voice_chain_import_no_library() -> None:
    """Every start asks for them, in a process that runs no stage."""
    code = (
        "import sys\n"
        "from dpfedge.stage.kinds import find_kind\n"
        "for name in ('decoder', 'encoder', 'llm', 'voice'): find_kind(name, where='x').ports({}, None)\n"
        "sys.exit(str(sorted({'numpy', 'jinja2', 'tokenizers', 'soxr', 'yaml'} & set(sys.modules)) or ''))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""
