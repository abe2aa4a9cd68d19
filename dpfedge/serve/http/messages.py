# SPDX-License-Identifier: Apache-2.0
"""The `messages` of a chat request in, plain role and text pairs out; anything the llm could not see is refused.

It renders no prompt and counts no tokens.
"""

from __future__ import annotations

from typing import Any

from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.fields import text

__all__ = ["read_messages"]

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PART_TYPES = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_FIELDS = ("role", "content")
_text = text()


def read_messages(name: str, value: Any) -> list[dict[str, str]]:
    """`[{"role": system|user|assistant, "content": text}, …]`, at least one."""
    if not isinstance(value, list) or not value:
        raise _wrong(name, value, "a list of at least one message")
    return [_message(f"{name}[{index}]", one) for index, one in enumerate(value)]


def _message(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong(where, value, "an object with role and content")
    role = value.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise _wrong(f"{where}.role", role, ", ".join(_ROLES))
    for key, given in value.items():
        if key not in _FIELDS and given not in (None, [], {}):
            raise RequestError(
                "this field of a message is not supported",
                where=f"{where}.{key}",
                param=f"{where}.{key}",
                remedy="leave it out; the model would not see it",
                code="unsupported_parameter",
            )
    return {"role": _ROLES[role], "content": _content(f"{where}.content", value.get("content"))}


def _content(where: str, value: Any) -> str:
    if isinstance(value, str):
        return str(_text(where, value))
    if not isinstance(value, list) or not value:
        raise _wrong(where, value, "text, or a list of text parts")
    return "\n".join(_part(f"{where}[{index}]", part) for index, part in enumerate(value))


def _part(where: str, part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else part
    if not isinstance(kind, str) or kind not in _PART_TYPES:
        raise _wrong(f"{where}.type", kind, "text (this model reads no images, audio or files)")
    return str(_text(f"{where}.{_PART_TYPES[kind]}", part.get(_PART_TYPES[kind])))


def _wrong(where: str, found: Any, allowed: str) -> RequestError:
    return RequestError(
        "cannot be used", where=where, found=repr(found)[:80], allowed=allowed, param=where, code="invalid_value"
    )
