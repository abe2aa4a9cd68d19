# SPDX-License-Identifier: Apache-2.0
"""The command finds its verb and gives the exit code of what happened."""

from __future__ import annotations

import argparse
import importlib
import io
import re
import shlex
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge import __version__, cli, errors
from dpfedge.cli import VERBS, main
from dpfedge.errors import DpfError

Output = pytest.CaptureFixture[str]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A verb `models` that does what `verb.does` says."""
    does = SimpleNamespace(does=lambda args: 0)
    module = SimpleNamespace(
        HELP="does\n\nexample: dpfedge models --loud",
        add_arguments=lambda parser: parser.add_argument("--loud", action="store_true"),
        run=lambda args: does.does(args),
    )
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: module)
    return does


@pytest.mark.parametrize("name", VERBS)
def test_verb__has_its_module(name: str) -> None:
    """Every verb that is listed exists, says what it does and takes --help."""
    module = importlib.import_module(f"dpfedge.cli.{name}")

    assert name == module.NAME
    assert module.HELP
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    assert parser.format_help()


@pytest.mark.parametrize("name", VERBS)
def test_verb__shows_examples_that_its_parser_takes(capsys: Output, name: str) -> None:
    """`--help` ends with examples to copy; each `dpfedge` line of them is a command that works."""
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    shown = capsys.readouterr().out
    module = importlib.import_module(f"dpfedge.cli.{name}")
    parser = argparse.ArgumentParser(exit_on_error=False)
    module.add_arguments(parser)
    lines = re.findall(rf"^(?:example:)? *dpfedge {name}\b(.*?)(?:   .*)?$", shown, re.MULTILINE)

    assert caught.value.code == 0
    assert lines
    for line in lines:
        parser.parse_args(shlex.split(line))


@pytest.mark.parametrize("name", sorted(set(VERBS) - {"talk"}))
def test_verb__that_reports_can_do_so_in_json(name: str) -> None:
    """Everything but a conversation, which is sound."""
    parser = argparse.ArgumentParser()
    importlib.import_module(f"dpfedge.cli.{name}").add_arguments(parser)
    parsers = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers += action.choices.values()

    assert any("--json" in one.format_help() for one in parsers)


def test_help__lists_every_verb(capsys: Output) -> None:
    """Asked for: exit 0. Nothing said: usage, exit 2."""
    assert main(["--help"]) == 0
    asked = capsys.readouterr().out
    assert all(f"  {name} " in asked for name in VERBS)
    assert main([]) == 2


def test_version__is_the_packages(capsys: Output) -> None:
    """One line."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dpfedge {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("rnu", "did you mean `run`?"), ("show", "did you mean `inspect`?"), ("qqqq", "see `dpfedge --help`")],
)
def test_unknown_verb__names_the_nearest(capsys: Output, typed: str, hint: str) -> None:
    """Exit 2; nothing on stdout."""
    assert main([typed]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"dpfedge: unknown command `{typed}`; {hint}\n"


def test_unknown_option__is_a_usage_error(capsys: Output, verb: Any) -> None:
    """argparse's exit, with our prefix."""
    with pytest.raises(SystemExit) as caught:
        main(["models", "--laud"])

    assert caught.value.code == 2
    assert "dpfedge: unrecognized arguments: --laud; did you mean `--loud`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ["models", "fetch"],
            "argument list|pull|remove: found 'fetch'; allowed list, pull, remove; did you mean `pull`?",
        ),
        (["models", "lst"], "found 'lst'; allowed list, pull, remove; did you mean `list`?"),
        (["models", "xyzzy"], "found 'xyzzy'; allowed list, pull, remove\n"),
        (["models", "list", "--jsn"], "unrecognized arguments: --jsn; did you mean `--json`?"),
        (["serve", "x", "--check", "ful"], "argument --check: found 'ful'; allowed fast, full; did you mean `full`?"),
        (["bind", "x", "--explian=1", "y"], "unrecognized arguments: --explian=1 y; did you mean `--explain`?"),
        (["bind", "x", "y"], "unrecognized arguments: y\n"),
    ],
)
def test_unknown_word__names_the_nearest(capsys: Output, command: list[str], said: str) -> None:
    """Of actions, choices and options; a word that is like none gets those that are allowed."""
    with pytest.raises(SystemExit) as caught:
        main(command)

    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_verb__gives_its_own_code_and_arguments(verb: Any) -> None:
    """What it returns is what the shell gets."""
    verb.does = lambda args: 7 if args.loud else 0

    assert (main(["models"]), main(["models", "--loud"])) == (0, 7)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("DpfError", 1), ("UsageError", 2), ("ConfigError", 2), ("InputError", 2), ("BindError", 3), ("BoardError", 3),
        ("PackageError", 4), ("DigestError", 4), ("SignatureError", 4), ("Unavailable", 5), ("BackendError", 1),
        ("StageDied", 1), ("Busy", 1),
    ],
)  # fmt: skip
def test_error__becomes_its_exit_code(capsys: Output, verb: Any, name: str, code: int) -> None:
    """The text goes to stderr, without a traceback."""
    kind: type[DpfError] = getattr(errors, name)

    def fail(args: argparse.Namespace) -> int:
        raise kind("it broke", where="here")

    verb.does = fail
    assert main(["models"]) == code
    assert capsys.readouterr().err == "dpfedge: here: it broke\n"


def test_ctrl_c__is_130(verb: Any) -> None:
    """As the shell expects it."""

    def stop(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    verb.does = stop
    assert main(["models"]) == 130


def test_reader__that_went_away() -> None:
    """`dpfedge --help | head -1` shows no traceback."""
    command = [sys.executable, "-c", "import sys; from dpfedge.cli import main; sys.exit(main(['boards', '--json']))"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        shown = process.stderr.read()

    assert "Traceback" not in shown


def test_verbs__import_only_themselves() -> None:
    """`dpfedge --version` pays for no library."""
    code = (
        "import sys; from dpfedge.cli import main; main(['--version']);"
        "sys.exit(str(sorted({'numpy', 'onnxruntime', 'starlette', 'asyncio'} & set(sys.modules)) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stderr.strip() in ("", "[]")


def test_main__prints_on_any_terminal(verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A character that its encoding lacks, or the bytes of a file's name that is no text, end no command."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    verb.does = lambda args: print("61×F32 \udcff") or 0

    assert main(["models"]) == 0
    out.flush()
    assert out.buffer.getvalue() == b"61\\xd7F32 \\udcff\n"  # type: ignore[attr-defined]


def test_main__standard_descriptors_that_were_closed() -> None:
    """No socket or file of ours gets their numbers; processes that are started find something there."""
    script = """
import os, sys
from dpfedge.cli import main
main(["--version"])
names = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)]
inherited = [os.get_inheritable(fd) for fd in range(3)]
os._exit(0 if names == ["/dev/null"] * 3 and all(inherited) else 1)
"""
    closed = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, script]
    assert subprocess.run(closed, timeout=60).returncode == 0
