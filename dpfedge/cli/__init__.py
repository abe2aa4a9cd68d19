# SPDX-License-Identifier: Apache-2.0
"""The `dpfedge` command: one small file per verb in this folder; this one finds the verb and maps errors to exit codes.

Exit codes: 0 done, 1 failed, 2 usage, 3 refused by binding, 4 verification or signature failed, 5 not available here.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from dpfedge import __version__
from dpfedge.errors import DpfError

__all__ = ["VERBS", "main"]

VERBS: dict[str, str] = {
    "compile": "build a package from model files and a pipeline",
    "inspect": "show what a package holds",
    "verify": "check every byte of a package, and who signed it",
    "keygen": "make a key to sign packages with",
    "sign": "sign a package",
    "models": "list and pull the models of the catalogue",
    "probe": "show what this machine is",
    "boards": "list the known boards",
    "backends": "list the backend plugins that were found",
    "doctor": "find what keeps an installation from working",
    "bind": "say which target of a package runs here, and why",
    "install": "install a package: verified, proved on this machine, switched to at once",
    "list": "list the installed packages",
    "rollback": "make the previous version of an installed package active",
    "remove": "remove an installed package",
    "gc": "delete what the store needs no more",
    "seal": "build on this device what only it can build",
    "serve": "serve a package over HTTP and WebSocket",
    "status": "show the running servers: stages, and the memory their processes share",
    "route": "say which instance serves a request, and why; prove a log of decisions",
    "top": "watch the running servers: stages, links, turns, processor and memory",
    "replay": "show a flight recording, or repeat it and compare",
    "run": "ask one spoken question from a file and write the spoken answer",
    "talk": "hold a conversation by microphone and loudspeaker",
    "bench": "measure a package on this board",
}


_SYNONYMS = {
    "build": "compile", "check": "verify", "delete": "remove", "download": "pull", "fetch": "pull", "get": "pull",
    "hardware": "probe", "info": "inspect", "ls": "list", "ps": "status", "rm": "remove", "show": "inspect",
    "start": "serve", "uninstall": "remove",
}  # fmt: skip
"""What other tools call it → our word, for the hint behind an unknown one."""


def _hint(word: str, known: Iterable[str]) -> str | None:
    """`did you mean …?` for the known word that is meant by another or misspelt; None when nothing is near."""
    import difflib  # only for this

    words = [*known]  # the verb `list` is an attribute of this module
    near = [_SYNONYMS[word]] if _SYNONYMS.get(word) in words else difflib.get_close_matches(word, words, 1)
    return f"did you mean `{near[0]}`?" if near else None


class _Parser(argparse.ArgumentParser):
    """argparse with our prefix, and the nearest word behind an unknown choice or option."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"dpfedge: {message}\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, extra = self.parse_known_args(args, namespace)
        if extra:
            option = next((word.partition("=")[0] for word in extra if word.startswith("-")), "")
            hint = _hint(option, self.options()) if option else None
            self.error("; ".join(["unrecognized arguments: " + " ".join(extra), *([hint] if hint else [])]))
        return parsed

    def options(self) -> Iterator[str]:
        """Every long option, those of actions below this one too."""
        for action in self._actions:
            yield from (text for text in action.option_strings if text.startswith("--"))
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser.options()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            words = [str(choice) for choice in action.choices]
            hint = _hint(str(value), words)
            parts = [f"found {value!r}", f"allowed {', '.join(words)}", *([hint] if hint else [])]
            raise argparse.ArgumentError(action, "; ".join(parts))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    _stand()
    arguments = [*(sys.argv[1:] if argv is None else argv)]  # the verb `list` is an attribute of this module
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: `×`, or any file's name, on any terminal
    try:
        return _run(arguments)
    except DpfError as error:
        print(f"dpfedge: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away; nothing is wrong here
        return 1
    except KeyboardInterrupt:
        return 130


def _stand() -> None:
    """Open the standard descriptors that were closed: else a socket gets their number, and libraries write into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)  # the lowest number is free
            os.set_inheritable(nothing, True)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"dpfedge {__version__}")
        return 0
    verb = arguments[0]
    if verb not in VERBS:
        hint = _hint(verb, VERBS) or "see `dpfedge --help`"
        print(f"dpfedge: unknown command `{verb}`; {hint}", file=sys.stderr)
        return 2
    # only the verb that runs is imported: `dpfedge bind` must not pay for a web server
    module = importlib.import_module(f"dpfedge.cli.{verb}")
    parser = _Parser(
        prog=f"dpfedge {verb}", description=module.HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(parser)
    code = module.run(parser.parse_args(arguments[1:]))
    return int(code)


def _help() -> str:
    width = max(len(verb) for verb in VERBS)
    lines = [f"  {verb.ljust(width)}  {text}" for verb, text in VERBS.items()]
    return "\n".join(
        ["usage: dpfedge COMMAND …", "", "commands:", *lines, "", "`dpfedge COMMAND --help` shows one command."]
    )
