# SPDX-License-Identifier: Apache-2.0
"""A chat template in, `Pieces` that are equal to it out, or why there are none; it knows no model.

That the pieces are equal for messages of every number, role and content follows from two steps:

1. The template is made of constructs only that copy what was said, whole or trimmed, and that decide by nothing but the
   roles of a message and of the first one, whether a message is the first or the last, and what is the same in every
   conversation (`_check`). So the text between two neighbours depends on no more than their roles, the role of the
   first message, and whether the one is the first and the other the last.
2. Conversations of up to four messages, of all roles, hold every case of these; the pieces are taken from those of one
   and two messages and compared with the template in all of them, with and without an opened answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes

from dpfedge.chat import ROLES, JinjaTemplate, Pieces, token_names
from dpfedge.errors import DpfError

__all__ = ["Unproven", "chat_pieces", "prove"]

_LONGEST = 4  # messages: two in the middle, of which neither is the first or the last
_MARK = "\ue000"  # for private use: no template has it
_VARYING = ("messages", "loop")
_FIRST = "messages[0]"


class Unproven(Exception):
    """Why a template has no pieces."""


def prove(source: str, tokens: Mapping[str, str]) -> Pieces:
    """The pieces that `JinjaTemplate(source, tokens)` is equal to; Unproven where that is not certain."""
    try:
        template = JinjaTemplate(source, tokens)
        _check(template.environment.parse(source))
        pieces = _take(template)
        for count in range(1, _LONGEST + 1):
            for roles in product(ROLES, repeat=count):
                _compare(template, pieces, roles)
    except (DpfError, TemplateError, TypeError) as error:  # TypeError: text and something else were added
        raise Unproven(str(error)) from error
    return pieces


def chat_pieces(assets: Mapping[str, bytes], ids: Mapping[str, Any]) -> tuple[dict[str, bytes], tuple[str, str]]:
    """The asset `chat_template.pieces` of a decoder with these assets and special ids, or none; what was decided."""
    added = json.loads(assets["tokenizer.json"]).get("added_tokens", ())
    specials = {token["content"]: token["id"] for token in added if token["special"]}
    try:
        names = token_names(specials, ids["bos"], ids["eos"])
        pieces = prove(str(assets["chat_template.jinja"], "utf-8"), names)
    except (Unproven, UnicodeDecodeError) as error:
        return {}, ("chat=jinja", f"no fixed text between messages is proven equal to the template: {error}")
    rule = "only fixed text stands between messages: a start needs no Jinja"
    return {"chat_template.pieces": pieces.pack()}, ("chat=pieces", rule)


def _messages(roles: Sequence[str]) -> list[dict[str, str]]:
    """Contents that occur nowhere else, with white space of several kinds around them."""
    return [{"role": role, "content": f" \t\n\u00a0{_MARK}{place}\u2003\n "} for place, role in enumerate(roles)]


def _take(template: JinjaTemplate) -> Pieces:
    trimmed = tuple(role for role in ROLES if _messages([role])[0]["content"] not in _render(template, [role]))

    def around(*roles: str, answer: bool = False) -> list[str]:
        """The text before, between and behind the contents."""
        rest, found = _render(template, roles, answer=answer), []
        for message in _messages(roles):
            content = message["content"].strip() if message["role"] in trimmed else message["content"]
            before, copied, rest = rest.partition(content)
            if not copied or _MARK in before:
                raise Unproven(f"a message of role {message['role']} is not copied once, after those before it")
            found.append(before)
        if _MARK in rest:
            raise Unproven(f"a message of role {roles[-1]} is copied more than once")
        return [*found, rest]

    return Pieces(
        start={role: around(role)[0] for role in ROLES},
        between={one: {other: around(one, other)[1] for other in ROLES} for one in ROLES},
        end={role: (around(role)[1], around(role, answer=True)[1]) for role in ROLES},
        trimmed=trimmed,
    )


def _render(template: JinjaTemplate, roles: Sequence[str], *, answer: bool = False) -> str:
    return template.render(_messages(roles), answer=answer)


def _compare(template: JinjaTemplate, pieces: Pieces, roles: Sequence[str]) -> None:
    for answer in (False, True):
        if pieces.render(_messages(roles), answer=answer) != _render(template, roles, answer=answer):
            raise Unproven(f"text depends on more than two neighbours, for messages of {', '.join(roles)}")


def _check(tree: nodes.Template) -> None:
    """Step 1; Unproven names the first construct that may do something else."""
    loops = [node for node in tree.body if isinstance(node, nodes.For)]
    if len(loops) != 1:
        raise Unproven(f"there are {len(loops)} loops, not one over the messages")
    for node in tree.body:
        if isinstance(node, nodes.For):
            _check_loop(node)
        else:
            _statement(node, None)


def _check_loop(loop: nodes.For) -> None:
    over = isinstance(loop.iter, nodes.Name) and loop.iter.name == "messages"
    if not over or not isinstance(loop.target, nodes.Name) or loop.target.name in _VARYING:
        _refuse(loop, "a loop over something else than messages")
    if loop.else_ or loop.test is not None or loop.recursive:
        _refuse(loop, "a loop with a condition, an else, or recursion")
    for node in loop.body:
        _statement(node, loop.target.name)


def _statement(node: nodes.Node, item: str | None) -> None:
    """`item`: what the loop around calls a message; None outside of it."""
    if isinstance(node, nodes.Output):
        for part in node.nodes:
            if not isinstance(part, nodes.TemplateData):
                _text(part, item)
    elif isinstance(node, nodes.If):
        _condition(node.test, item)
        for inner in (*node.body, *node.elif_, *node.else_):
            _statement(inner, item)
    elif isinstance(node, nodes.Assign) and item is None and isinstance(node.target, nodes.Name):
        _fixed(node.target, item)
        _constant(node.node, item)
    else:
        _refuse(node, f"{type(node).__name__} here")


def _text(node: nodes.Node, item: str | None) -> None:
    """Text that is the same in every conversation, a role, or a whole or trimmed content."""
    if isinstance(node, nodes.Concat):
        for part in node.nodes:
            _text(part, item)
    elif isinstance(node, nodes.Add):
        _text(node.left, item)
        _text(node.right, item)
    elif isinstance(node, nodes.Filter):
        if node.name != "trim" or node.args or node.kwargs or _member(node.node) != (item, "content"):
            _refuse(node, f"the filter {node.name} of something else than a content")
    elif item is None or _member(node) != (item, "content"):
        _role_or_constant(node, item)


def _condition(node: nodes.Node, item: str | None) -> None:
    """One that no content decides, and no number of messages."""
    if isinstance(node, nodes.And | nodes.Or):
        _condition(node.left, item)
        _condition(node.right, item)
    elif isinstance(node, nodes.Not):
        _condition(node.node, item)
    elif isinstance(node, nodes.Compare) and all(operand.op in ("eq", "ne") for operand in node.ops):
        for part in (node.expr, *(operand.expr for operand in node.ops)):
            _role_or_constant(part, item)
    elif isinstance(node, nodes.Test) and not (node.args or node.kwargs):
        _constant(node.node, item)
    elif item is None or _member(node) not in (("loop", "first"), ("loop", "last")):
        _constant(node, item)


def _role_or_constant(node: nodes.Node, item: str | None) -> None:
    known = _member(node)
    if known is None or known[1] != "role" or known[0] not in (item, _FIRST):
        _constant(node, item)


def _constant(node: nodes.Node, item: str | None) -> None:
    if isinstance(node, nodes.Name):
        _fixed(node, item)
    elif not isinstance(node, nodes.Const):
        _refuse(node, f"{type(node).__name__} of what was said")


def _fixed(node: nodes.Name, item: str | None) -> None:
    if node.name in (*_VARYING, item):
        _refuse(node, f"{node.name} as a whole")


def _member(node: nodes.Node | None) -> tuple[str | None, str] | None:
    """(what, name) of `what.name` and `what['name']`, where what is a name or the first message."""
    if isinstance(node, nodes.Getattr):
        return _owner(node.node), node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
        return _owner(node.node), node.arg.value
    return None


def _owner(node: nodes.Node) -> str:
    if isinstance(node, nodes.Name):
        return node.name
    if not isinstance(node, nodes.Getitem) or not isinstance(node.arg, nodes.Const) or node.arg.value != 0:
        return ""
    return _FIRST if isinstance(node.node, nodes.Name) and node.node.name == "messages" else ""


def _refuse(node: nodes.Node, what: str) -> NoReturn:
    raise Unproven(f"line {node.lineno}: {what}")
