# SPDX-License-Identifier: Apache-2.0
"""The README's blocks run: what it says to type exists, and what it shows is what the examples do."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest
from demo_form import turns_of

from dpfedge.cli import VERBS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "examples").glob("*/README.md")), ROOT / "CONTRIBUTING.md"]
MAKEFILE = (ROOT / "Makefile").read_text()


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def between(text: str, name: str) -> str:
    """What stands between the markers `name`."""
    found = re.search(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", text, re.DOTALL)
    assert found is not None, f"no {name} block"
    return found.group(1)


def typed(path: Path) -> list[str]:
    """The commands a page says to type."""
    text = path.read_text()
    lines = [line for block in blocks(text, "console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


COMMANDS = [(path, line) for path in PAGES for line in typed(path)]
IDS = [f"{path.relative_to(ROOT)}: {line.partition('#')[0].strip()[:60]}" for path, line in COMMANDS]


@pytest.mark.parametrize(("path", "line"), COMMANDS, ids=IDS)
def test_command__exists_with_its_options(path: Path, line: str) -> None:
    """A dpfedge verb with options its parser takes, a make target, or a script with files that are here."""
    program, *arguments = shlex.split(line, comments=True)
    name = Path(program).name
    if name == "make":
        assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in arguments)
    elif name == "dpfedge":
        assert arguments[0] in VERBS
        parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
        importlib.import_module(f"dpfedge.cli.{arguments[0]}").add_arguments(parser)
        assert parser.parse_known_args(arguments[1:])[1] == []
    elif name.startswith("python"):
        assert arguments[0] in ("-m", "-c") or (ROOT / arguments[0]).exists()
    else:
        assert name in ("git", "cd", "export", "pip", "curl", "uv", "docker"), "teach this test the program"


def test_embedding__is_the_example() -> None:
    """The same statements, with names for what the example takes from its command line."""
    (block,) = blocks(between(README, "embed"), "python")
    example = ast.parse((ROOT / "examples" / "embed" / "main.py").read_text())
    ours = ast.parse(block)

    names = {"package": "build/voice.dpfbin", "question": "build/question1.wav", "out": "answer.wav"}

    class Named(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            loaded = node.id in names and isinstance(node.ctx, ast.Load)
            return ast.Constant(names[node.id]) if loaded else node

    wanted = [Named().visit(node) for node in example.body if isinstance(node, ast.With)]
    assert [ast.dump(node) for node in ours.body if isinstance(node, ast.With)] == [ast.dump(node) for node in wanted]
    assert "from dpfedge import Runtime" in block
    assert len(block.strip().splitlines()) <= 10


@pytest.mark.parametrize("block", blocks(README, "python"))
def test_python_block__parses_and_its_names_exist(block: str) -> None:
    """Every import can be made."""
    tree = ast.parse(block)
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported
    for node in imported:
        assert node.module is not None
        module = importlib.import_module(node.module)
        assert all(hasattr(module, alias.name) for alias in node.names)


def test_demo_output__has_the_form_that_the_demo_prints() -> None:
    """What `make demo` printed once: ready, questions with where the time went, and the count."""
    turns = turns_of(between(README, "demo"))
    asked = (ROOT / "examples" / "voice" / "questions.txt").read_text().splitlines()

    assert [turn.asked for turn in turns] == asked[: len(turns)]


def test_boards__in_the_table_are_those_that_are_known() -> None:
    """Every board file is in the README, and no other."""
    rows = re.findall(r"^\| (`.+?) \|", README, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`([a-z0-9-]+)`", row)}

    assert named == {path.stem for path in (ROOT / "boards").glob("*.yaml")} - {"_schema"}


def test_links__lead_to_files() -> None:
    """Every file that the README names is there."""
    names = re.findall(r"`((?:dpfedge|examples|plugins|boards)/[\w./-]+)`", README)

    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_endpoints__in_the_readme_are_those_of_the_server() -> None:
    """None is missing on either side."""
    from dpfedge.serve.app import create_app
    from dpfedge.serve.provider import Provider

    async def launch() -> None:
        raise AssertionError

    routes = create_app(Provider("toy", launch)).routes  # type: ignore[arg-type]
    served = {getattr(route, "path", "") for route in routes} - {"/v1/models/{model:path}"}

    assert served == set(re.findall(r"`(/[\w/-]+)`", README))
