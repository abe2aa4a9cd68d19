# SPDX-License-Identifier: Apache-2.0
"""No duration, deadline or order comes from a clock that can be set: the time of day is for people to read only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = [
    *(ROOT / "dpfedge").rglob("*.py"),
    *(ROOT / "plugins").rglob("dpfedge_*/*.py"),
    *ROOT.glob("examples/**/*.py"),
]

SHOWN = {
    "dpfedge/cli/replay.py": "when a recording was made",
    "dpfedge/pipeline/flight.py": "when a recording was made",
    "dpfedge/routing/log.py": "the time of a line",
    "dpfedge/routing/salt.py": "which day a salt is of; another day only ends it, and it ends without one too",
    "dpfedge/serve/http/chat.py": "`created` of a chat completion",
    "dpfedge/serve/instances.py": "when a session began, which is part of its key and is compared with nothing",
    "dpfedge/serve/provider.py": "`created` of a model",
    "dpfedge/serve/traces.py": "the times of spans",
    "dpfedge/serve/turnlog.py": "the time of a line",
    "dpfedge/chat.py": "the date in a prompt",
}
"""Where the time of day is told, and what of it; a module that comes here has to say for whom."""

SETTABLE = {
    "time": {"time", "time_ns", "ctime", "localtime", "gmtime", "asctime", "strftime", "CLOCK_REALTIME"},
    "datetime": {"now", "today", "utcnow"},
    "date": {"today"},
}
C_SETTABLE = re.compile(
    r"CLOCK_(REALTIME|TAI)|gettimeofday|\btime\s*\(|timespec_get|FUTEX_CLOCK_REALTIME|pthread_cond_timedwait|sem_timedwait"
    r"|\blocaltime|\bgmtime"
)


def _uses(path: Path) -> Iterator[str]:
    """Names of settable clocks in a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if node.attr in SETTABLE.get(owner, ()):
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (f"time.{alias.name}" for alias in node.names if alias.name in SETTABLE["time"])


def test_clocks__of_python_are_steady() -> None:
    """CLOCK_MONOTONIC, whatever happens to the time of day: a day ahead, a day back, 1970."""
    found = {str(path.relative_to(ROOT)): sorted(set(_uses(path))) for path in PRODUCT}
    assert {name: uses for name, uses in found.items() if uses and name not in SHOWN} == {}


def test_clocks__that_are_shown_are_compared_with_nothing() -> None:
    """Only the steady clock is subtracted there, to show a moment of it; the list holds no leftovers."""
    for name in SHOWN:
        assert list(_uses(ROOT / name)), name
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.Compare) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
                text = ast.unparse(node)
                assert not re.search(r"\btime\.time|\.now\(", text) or "time.monotonic_ns()" in text, f"{name}: {text}"


def test_clocks__of_c_are_steady() -> None:
    """The link's waits take absolute CLOCK_MONOTONIC times, and so do its time stamps."""
    found = {}
    for path in sorted((ROOT / "firmware_bridge").glob("*/**/*.[ch]")):
        if "build" in path.parts:
            continue
        code = re.sub(r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"", "", path.read_text(), flags=re.S)
        if match := C_SETTABLE.search(code):
            found[str(path.relative_to(ROOT))] = match.group()
    assert found == {}
    assert "CLOCK_MONOTONIC" in (ROOT / "firmware_bridge" / "src" / "posix.c").read_text()


def test_clocks__a_settable_one_would_be_found(tmp_path: Path) -> None:
    """In every way it can be written."""
    module = tmp_path / "module.py"
    module.write_text(
        "import time, datetime\nfrom time import time_ns\n"
        "a = time.time()\nb = datetime.datetime.now()\nc = time.clock_gettime(time.CLOCK_REALTIME)\n"
    )
    assert set(_uses(module)) == {"time.time_ns", "time.time", "datetime.now", "time.CLOCK_REALTIME"}
    assert C_SETTABLE.search("clock_gettime(CLOCK_REALTIME, &now)")
    assert C_SETTABLE.search("x = time(NULL)")
