# SPDX-License-Identifier: Apache-2.0
"""Chat messages in, the prompt's text out, by the model's own template; it counts no tokens.

Messages are checked before; what of them reaches the template cannot end its own turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from dpfedge.chat import Template
from dpfedge.errors import InputError

__all__ = ["ChatTemplate", "check_messages"]

_ROLES = ("system", "developer", "user", "assistant", "tool")


class ChatTemplate:
    """One model's template; `specials` are the texts of its special tokens."""

    def __init__(self, template: Template, specials: Sequence[str] = ()) -> None:
        self._template = template
        self._alternating = self._refuses("user", "user") and not self._refuses("user", "assistant", "user")
        self._specials = sorted((text for text in specials if len(text) > 1), key=len, reverse=True)

    def render(self, messages: Sequence[Mapping[str, str]], *, answer: bool = True) -> str:
        """The prompt for `messages` as `check_messages` gives them; `answer` opens the assistant's turn.

        Where the template insists on turns that alternate, as Gemma's does, neighbours of one role become one message:
        whoever interrupts before a word was heard has said two things in a row.
        """
        safe = [{**message, "content": self._plain(message["content"])} for message in messages]
        return self._template.render(_joined(safe) if self._alternating else safe, answer=answer)

    def _refuses(self, *roles: str) -> bool:
        try:
            self._template.render([{"role": role, "content": "a"} for role in roles], answer=False)
        except InputError:
            return True
        return False

    def _plain(self, content: str) -> str:
        """Text that only looks like one of the model's special tokens must not become one: a space parts it."""
        for special in self._specials:
            if special in content:
                content = content.replace(special, f"{special[0]} {special[1:]}")
        return content


def _joined(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Neighbours of one role as one message, their texts in lines of their own."""
    found: list[dict[str, str]] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"]:
            found[-1]["content"] += "\n" + message["content"]
        else:
            found.append(dict(message))
    return found


def check_messages(messages: object) -> list[dict[str, str]]:
    """[{role, content}] with plain text contents; InputError names the place of the first fault."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        _fail("messages", "must be a list", type(messages).__name__)
    if not messages:
        _fail("messages", "must hold at least one message", "[]")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: object, where: str) -> dict[str, str]:
    if not isinstance(message, Mapping):
        _fail(where, "must be an object", type(message).__name__)
    role = message.get("role")
    if role not in _ROLES:
        _fail(f"{where}.role", "unknown role", repr(role), ", ".join(_ROLES))
    content = message.get("content")
    if content is None and not (role == "assistant" and message.get("tool_calls")):
        _fail(f"{where}.content", "must be text or a list of text parts", "null" if "content" in message else "nothing")
    return {"role": "system" if role == "developer" else role, "content": _content(content, f"{where}.content")}


def _content(content: object, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        _fail(where, "must be text or a list of text parts", type(content).__name__)
    return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: object, where: str) -> str:
    if not isinstance(part, Mapping):
        _fail(where, "must be an object", type(part).__name__)
    kind, text = part.get("type"), part.get("text")
    if kind not in ("text", "input_text", "output_text"):
        _fail(f"{where}.type", "this model reads text only", repr(kind), "text")
    if not isinstance(text, str):
        _fail(f"{where}.text", "must be a string", type(text).__name__)
    return text


def _fail(where: str, what: str, found: str, allowed: str | None = None) -> NoReturn:
    raise InputError(what, stage="llm", where=where, found=found, allowed=allowed)
