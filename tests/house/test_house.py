# SPDX-License-Identifier: Apache-2.0
"""The house rules, executable: import order, sizes, licence lines, exports, and no blanket excepts."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = sorted((ROOT / "dpfedge").rglob("*.py")) + sorted((ROOT / "plugins").rglob("dpfedge_*/*.py"))
EVERYTHING = PRODUCT + sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))

# Top to bottom as in ARCHITECTURE: a room imports only rooms of its own level or above it.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("errors", "limits", "records"),
    ("tensors",),
    ("config", "chat", "vocabulary"),
    ("package", "models"),
    ("hardware", "signing"),
    ("backend", "plugin"),
    ("compiler", "binding"),
    ("store",),
    ("link",),
    ("routing",),
    ("stage",),
    ("seal",),
    ("pipeline",),
    ("runtime",),
    ("doctor",),
    ("serve", "bench", "cli"),
)
ORDER = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{_name(path)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def test_imports__point_down_the_map_only() -> None:
    """No room imports a room below it."""
    wrong = []
    for path in (ROOT / "dpfedge").rglob("*.py"):
        parts = path.relative_to(ROOT / "dpfedge").with_suffix("").parts
        if parts[0] not in ORDER:
            continue
        for module in _imports(path):
            room = module.split(".")[1] if module.startswith("dpfedge.") else ""
            if room in ORDER and ORDER[room] > ORDER[parts[0]]:
                wrong.append(f"{_name(path)} imports {module}")
    assert wrong == []


def test_rooms__are_all_on_the_map() -> None:
    """A new room gets its level here before it gets code."""
    found = {p.stem for p in (ROOT / "dpfedge").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert found - {"__init__", "__main__", "testing"} == set(ORDER)


def test_plugins__use_the_public_contract_only() -> None:
    """Backends import dpfedge.backend, errors, tensors and the hook markers, nothing else."""
    allowed = ("dpfedge.backend", "dpfedge.errors", "dpfedge.tensors", "dpfedge.plugin.hookspecs")
    wrong = [
        f"{_name(path)} imports {module}"
        for path in PRODUCT
        if "plugins" in path.parts
        for module in _imports(path)
        if module.split(".")[0] == "dpfedge" and not module.startswith(allowed)
        # the module `verify` proves a backend, with what dpfedge ships for that
        if not (path.name == "verify.py" and module.startswith("dpfedge.testing"))
    ]
    assert wrong == []


@pytest.mark.parametrize("path", EVERYTHING, ids=_name)
def test_file__has_a_licence_line_and_a_reasonable_size(path: Path) -> None:
    """One SPDX line first; at most 400 lines."""
    lines = path.read_text().splitlines()
    assert lines[0] == "# SPDX-License-Identifier: Apache-2.0"
    assert len(lines) <= 400


def test_functions__are_short() -> None:
    """Median under 10 lines, none over 60."""
    sizes = [size for path in PRODUCT for _, size in _functions(path)]
    assert statistics.median(sizes) < 10
    assert [item for path in PRODUCT for item in _functions(path) if item[1] > 60] == []


def test_excepts__are_never_blanket() -> None:
    """No `except:`, `except Exception` or `except BaseException` that does not raise again."""
    wrong = []
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and _is_blanket(node) and not isinstance(node.body[-1], ast.Raise):
                wrong.append(f"{_name(path)}:{node.lineno}")
    assert wrong == []


def _is_blanket(node: ast.ExceptHandler) -> bool:
    return node.type is None or getattr(node.type, "id", "") in ("Exception", "BaseException")


@pytest.mark.parametrize("path", PRODUCT, ids=_name)
def test_exports__are_complete_and_sorted(path: Path) -> None:
    """`__all__`, where it stands, names what exists, in order."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
            assert len(names) == len(set(names))
            assert all(
                re.search(rf"\b{re.escape(name)}\b", path.read_text().replace(f'"{name}"', "")) for name in names
            )


def test_version__is_the_newest_changelog_entry() -> None:
    """pyproject, the package and the changelog agree."""
    import dpfedge

    head = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert head is not None
    assert head.group(1) == project == dpfedge.__version__


def test_core__is_built_from_every_source() -> None:
    """pyproject cannot glob: its lists are the folders' content."""
    [core] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    bridge = ROOT / "firmware_bridge"
    sources = [*bridge.glob("src/*.c"), *bridge.glob("python/*.c")]
    headers = [*bridge.glob("include/dpf/*.h"), *bridge.glob("src/*.h"), *bridge.glob("python/*.h")]
    assert sorted(core["sources"]) == sorted(map(_name, sources))
    assert sorted(core["depends"]) == sorted(map(_name, headers))


def test_extras__say_whether_they_have_aarch64_wheels() -> None:
    """Each one is in the table."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (ROOT / "tests/aarch64/README.md").read_text().partition("## Which extras")[2]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert sorted(extras) == sorted(re.findall(r"`(\w+)`", "".join(cells)))


def test_top_level__holds_what_was_agreed() -> None:
    """Everything has its room."""
    agreed = {
        *("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "BENCH.md", "LICENSE", "Makefile", ".ci"),
        *("dpfedge", "plugins", "boards", "firmware_bridge", "tests", "examples", "requirements.lock", ".gitignore"),
    }
    git = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if git.returncode:
        pytest.skip("not a git checkout")
    assert {line.split("/")[0] for line in git.stdout.splitlines()} <= agreed


def test_limits__all_have_a_reason_nearby() -> None:
    """Every limit is documented: a comment on its line or its group's heading."""
    wrong, heading = [], False
    for line in (ROOT / "dpfedge" / "limits.py").read_text().splitlines():
        if line.startswith("#"):
            heading = True
        elif not line.strip():
            heading = False
        elif re.match(r"[A-Z_0-9, ]+ =", line) and "#" not in line and not heading:
            wrong.append(line)
    assert [line for line in wrong if not line.startswith("KIB")] == []


# Modules without a test file of their own → what tests them, and why there.
TESTED_ELSEWHERE: dict[str, tuple[str, str]] = {
    "dpfedge/backend/api.py": ("tests/unit/plugins/dpfedge_cpu/test_backend.py", "protocols and plain records"),
    "dpfedge/compiler/decoder/source.py": ("tests/unit/compiler/decoder/test_gguf.py", "a protocol; a file fulfils it"),
    "dpfedge/stage/api.py": ("tests/unit/pipeline/test_runner.py", "protocols and the numbers of the wire"),
    "dpfedge/serve/api.py": ("tests/unit/serve/conftest.py", "protocols; the fake runtime has their methods"),
    "dpfedge/pipeline/events.py": ("tests/unit/pipeline/test_feed.py", "plain records"),
    "dpfedge/plugin/hookspecs.py": ("tests/unit/plugin/test_manager.py", "one hook without a body"),
    "dpfedge/limits.py": ("tests/house/test_house.py", "numbers; those who check them test them"),
    "dpfedge/bench/cold.py": ("tests/e2e/test_bench.py", "a process with one statement"),
    "dpfedge/bench/baseline/plain.py": ("tests/bench/peers.py", "imports llama-cpp-python, which only a bench needs"),
    "dpfedge/serve/app.py": ("tests/unit/serve/test_http.py", "the table of endpoints, asked over a socket"),
    "dpfedge/serve/http/chat.py": ("tests/unit/serve/test_http.py", "an endpoint, asked over a socket"),
    "dpfedge/serve/http/health.py": ("tests/unit/serve/test_http.py", "endpoints, asked over a socket"),
    "dpfedge/serve/http/models.py": ("tests/unit/serve/test_openai.py", "endpoints, asked by the openai client"),
    "dpfedge/serve/http/transcriptions.py": (
        "tests/unit/serve/test_openai.py",
        "an endpoint, asked by the openai client",
    ),
    "dpfedge/serve/realtime/turns.py": ("tests/unit/serve/realtime/test_realtime.py", "server events over a WebSocket"),
}
MODULES = [path for path in PRODUCT if path.stem not in ("__init__", "__main__")]


def _twin(path: Path) -> Path:
    parts = path.relative_to(ROOT).parts
    place = Path(*parts[1:]) if parts[0] == "dpfedge" else Path("plugins", *parts[2:])
    return ROOT / "tests" / "unit" / place.parent / f"test_{place.stem}.py"


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_module__has_a_test_file_in_the_same_place(path: Path) -> None:
    """tests/unit mirrors the code; an exception names the tests that stand in."""
    if _name(path) in TESTED_ELSEWHERE:
        assert not _twin(path).exists(), "it has a test file now: take it off the list"
        assert (ROOT / TESTED_ELSEWHERE[_name(path)][0]).exists()
    else:
        assert _twin(path).exists(), f"write {_name(_twin(path))}"


def test_exceptions__are_of_modules_that_exist() -> None:
    """The list holds no leftovers."""
    assert set(TESTED_ELSEWHERE) <= {_name(path) for path in MODULES}


@pytest.mark.parametrize("path", [path for path in PRODUCT if path.stem == "__init__"], ids=_name)
def test_init__holds_names_and_no_work(path: Path) -> None:
    """It exports; what it does beyond that is short enough to see. The command, which does more, is tested."""
    if _name(path) == "dpfedge/cli/__init__.py":
        assert (ROOT / "tests/unit/cli/test_main.py").exists()
        return
    tree = ast.parse(path.read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert sum(size for _, size in _functions(path)) <= 10
