# SPDX-License-Identifier: Apache-2.0
"""The folder to copy: its packaging, and its own test."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dpfedge_template import TemplateBackend, dpfedge_register_backends

from dpfedge.backend.api import missing
from dpfedge.plugin.manager import GROUP

ROOT = Path(__file__).parents[4]
PLUGINS = sorted((ROOT / "plugins").glob("dpfedge-*"))


def test_register__one_whole_backend() -> None:
    """It is a backend as it stands."""
    offered: list[Any] = []
    dpfedge_register_backends(SimpleNamespace(add=offered.append))

    assert [(one.name, missing(one)) for one in offered] == [("template", ())]
    assert TemplateBackend().devices(Path("/"))[0].backend == "template"


def test_packaging__of_every_plugin() -> None:
    """Distribution, module and entry point have one name, and the types are shipped."""
    for plugin in PLUGINS:
        name = plugin.name.removeprefix("dpfedge-")
        project = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]
        assert project["name"] == plugin.name
        assert project["entry-points"][GROUP] == {name: f"dpfedge_{name}"}
        assert (plugin / f"dpfedge_{name}" / "py.typed").exists()
        assert (plugin / "README.md").read_text().startswith(f"# {plugin.name}\n")


def test_conformance__is_what_the_template_ships() -> None:
    """The test of the copy is the one that runs here."""
    shipped = ROOT / "plugins" / "dpfedge-template" / "tests" / "test_conformance.py"

    assert shipped.read_text() == (ROOT / "tests" / "conformance" / "test_template.py").read_text()
