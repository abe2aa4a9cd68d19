# SPDX-License-Identifier: Apache-2.0
"""Plugins as users get them: built and installed by pip, found by their entry points in a new process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CLAIM = """
from dpfedge.plugin.hookspecs import hookimpl
from dpfedge_null import NullBackend

@hookimpl
def dpfedge_register_backends(register):
    register.add(NullBackend())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Template, null and reference, built from copies of their folders."""
    folder = tmp_path_factory.mktemp("plugins")
    sources = []
    for name in ("template", "null", "reference"):
        source = folder / "source" / name
        shutil.copytree(
            ROOT / "plugins" / f"dpfedge-{name}", source, ignore=shutil.ignore_patterns("*.egg-info", "build")
        )
        sources.append(str(source))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    done = subprocess.run([*command, str(folder / "packages"), *sources], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "packages"


def dpfedge(packages: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that sees these packages, too."""
    everything: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(packages), **environ}
    return subprocess.run([sys.executable, "-m", "dpfedge", *arguments], env=everything, capture_output=True, text=True)


def listed(packages: Path, **environ: str) -> dict[str, Any]:
    """What `dpfedge backends --json` prints."""
    done = dpfedge(packages, "backends", "--json", **environ)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_plugins__are_found_by_their_entry_points(installed: Path) -> None:
    """All of them beside those that `make setup` installs, each with its device."""
    found = listed(installed)

    assert [row["name"] for row in found["backends"]] == ["cpu", "null", "opencl", "reference", "template"]
    assert all(row["devices"] for row in found["backends"] if row["name"] != "opencl")  # where there is a driver
    assert found["broken"] == []


def test_plugins__can_be_restricted(installed: Path) -> None:
    """By a variable; a name that is not installed is an error that lists those that are."""
    found = listed(installed, DPFEDGE_PLUGINS="template,reference")
    assert [row["name"] for row in found["backends"]] == ["reference", "template"]

    done = dpfedge(installed, "backends", DPFEDGE_PLUGINS="opengl")
    assert done.returncode == 2
    assert "plugin opengl: no such plugin is installed; allowed cpu, null, opencl, reference, template" in done.stderr


def test_plugins__a_broken_one_stops_no_other(installed: Path, tmp_path: Path) -> None:
    """An import that fails is reported with distribution, step and reason, in `backends` and in `doctor`."""
    packages = tmp_path / "packages"
    shutil.copytree(installed, packages)
    (packages / "dpfedge_template" / "backend.py").write_text("import ctypes\nctypes.CDLL('libgone.so.7')\n")

    found = listed(packages)

    assert [row["name"] for row in found["backends"]] == ["cpu", "null", "opencl", "reference"]
    [broken] = found["broken"]
    assert (broken["plugin"], broken["hook"]) == ("dpfedge-template 0.1.0", "import")
    assert "libgone.so.7" in broken["reason"]
    done = dpfedge(packages, "doctor")
    assert done.returncode == 1
    assert "fault: dpfedge-template 0.1.0: import: OSError: libgone.so.7" in done.stdout


def test_plugins__two_claims_on_one_name(installed: Path, tmp_path: Path) -> None:
    """Neither is chosen: both distributions are named."""
    packages = tmp_path / "packages"
    shutil.copytree(installed, packages)
    (packages / "rival.py").write_text(CLAIM)
    info = packages / "rival_backend-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rival-backend\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[dpfedge]\nrival = rival\n")

    done = dpfedge(packages, "backends")

    assert done.returncode == 2
    assert "backend null: two distributions claim one backend name" in done.stderr
    assert "dpfedge-null 0.1.0 and rival-backend 2.0" in done.stderr
    assert dpfedge(packages, "backends", DPFEDGE_PLUGINS="cpu,rival").returncode == 0


def test_template__passes_its_own_test_where_it_is_installed(installed: Path) -> None:
    """With the packages pip installed, outside of our tree."""
    test = ROOT / "plugins" / "dpfedge-template" / "tests" / "test_conformance.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(test)]

    done = subprocess.run(
        command, cwd=installed, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout[-2000:]
