# SPDX-License-Identifier: Apache-2.0
"""Checked chat messages in, a prompt's text out: by the model's own Jinja template, or by pieces that are equal to it.

Templates are Jinja as in Hugging Face's `chat_template`, run in a sandbox. Most of them only put fixed text between
what was said: for these the compiler proves which text (`dpfedge.compiler.chat`) and a package keeps it as `Pieces`,
which are data and need no Jinja. This module checks no messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, NoReturn, Protocol

from dpfedge.errors import InputError, ModelError
from dpfedge.records import dataclass

__all__ = ["ROLES", "JinjaTemplate", "Pieces", "Template", "token_names"]

ROLES = ("system", "user", "assistant", "tool")
"""Of messages as templates see them."""


class Template(Protocol):
    """What a model makes of messages."""

    def render(self, messages: Sequence[Mapping[str, str]], *, answer: bool) -> str:
        """The prompt for [{role, content}], one or more; `answer` opens the assistant's turn. InputError if refused."""


def token_names(specials: Mapping[str, int], bos: int | None, ends: Sequence[int]) -> dict[str, str]:
    """What templates call the special tokens: of the text → id of all those, the one that begins and the first end."""
    texts = {number: text for text, number in specials.items()}
    known = [texts[number] for number in sorted(ends) if number in texts]
    return {"bos_token": "" if bos is None else texts.get(bos, ""), "eos_token": known[0] if known else ""}


class JinjaTemplate:
    """A template in its own words; `tokens` are names it may use, as `token_names` gives them."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        # half of what a language model's stage imports, and no package with pieces needs it
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        loops = ["jinja2.ext.loopcontrols"]
        self.environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=loops)
        self.environment.globals["raise_exception"] = _refuse
        self.environment.globals["strftime_now"] = _now
        self.environment.filters["tojson"] = _to_json
        self._error = TemplateError
        try:
            self._template = self.environment.from_string(source)
        except TemplateError as error:
            raise ModelError("the chat template cannot be read", where="chat template", found=str(error)) from error
        self._tokens = dict(tokens)

    def render(self, messages: Sequence[Mapping[str, str]], *, answer: bool) -> str:
        """See `Template`."""
        # a spoken answer has no room for a model's thoughts; templates that know the switch turn them off
        fixed = {"add_generation_prompt": answer, "enable_thinking": False}
        try:
            return self._template.render(messages=list(messages), **fixed, **self._tokens)
        except self._error as error:
            raise InputError("the model's template refuses these messages", stage="llm", found=str(error)) from error


@dataclass(frozen=True, slots=True)
class Pieces:
    """The text before, between and behind what was said, by the roles of those who said it."""

    start: Mapping[str, str]
    """Role of the first message → the text before it."""
    between: Mapping[str, Mapping[str, str]]
    """Role of a message → role of the next → the text between them."""
    end: Mapping[str, tuple[str, str]]
    """Role of the last message → the text behind it, without and with the assistant's turn opened."""
    trimmed: tuple[str, ...] = ()
    """Roles whose messages lose white space at both ends."""

    def render(self, messages: Sequence[Mapping[str, str]], *, answer: bool) -> str:
        """See `Template`; it refuses none."""
        roles = [message["role"] for message in messages]
        parts = [self.start[roles[0]]]
        for message, following in zip(messages, [*roles[1:], None], strict=True):
            role, content = message["role"], message["content"]
            parts.append(content.strip() if role in self.trimmed else content)
            parts.append(self.end[role][answer] if following is None else self.between[role][following])
        return "".join(parts)

    def pack(self) -> bytes:
        """The form kept in a package."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True).encode()

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Pieces:
        """The inverse of `pack`; ModelError when it is something else."""
        try:
            fields = json.loads(bytes(data))
            start, between = _texts(fields["start"]), {role: _texts(fields["between"][role]) for role in ROLES}
            end = {role: (_text(fields["end"][role][0]), _text(fields["end"][role][1])) for role in ROLES}
            return cls(start, between, end, tuple(role for role in ROLES if role in fields["trimmed"]))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            found, remedy = f"{type(error).__name__}: {error}", "compile the package again"
            raise ModelError("no pieces of a chat template", where="asset", found=found, remedy=remedy) from error


def _texts(value: Any) -> dict[str, str]:
    return {role: _text(value[role]) for role in ROLES}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    value.encode()  # half of a surrogate pair, which JSON can carry, would be a fault of each request
    return value


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateRuntimeError

    raise TemplateRuntimeError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    indent: int | None = None,
    *,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
