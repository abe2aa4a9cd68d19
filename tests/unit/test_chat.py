# SPDX-License-Identifier: Apache-2.0
"""What the families' own templates make of messages, and pieces of text in a template's place."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from dpfedge.chat import ROLES, JinjaTemplate, Pieces, token_names
from dpfedge.errors import InputError, ModelError

# Short forms of the families' own templates: the same constructs, fewer words.
LLAMA3 = """\
{{- bos_token }}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%Y") %}{% endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" + date_string[:2] + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
"""
QWEN3 = """\
{%- if tools %}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not message.content.startswith('<tool_response>') %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- if message.reasoning_content is string %}{{- 'never' }}
        {%- elif '</think>' in content %}{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}
        {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- if message.tool_calls %}{%- for call in message.tool_calls %}{{- call }}{%- endfor %}{%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
"""
GEMMA3 = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}
    {%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}{{ "never" }}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}
"""
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello."},
    {"role": "user", "content": " Bye "},
]


TURNS = "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>".format


@pytest.mark.parametrize(("source", "text"), [
    (LLAMA3, "<s>" + TURNS("system", "20Be brief.") + TURNS("user", "Hi")
     + TURNS("assistant", "<think>\nhm\n</think>\n\nHello.") + TURNS("user", "Bye") + TURNS("assistant", "")[:-10]),
    (QWEN3, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello."
     "<|im_end|>\n<|im_start|>user\n Bye <|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"),
    (GEMMA3, "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n<think>\nhm\n</think>\n\n"
     "Hello.<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"),
], ids=["llama3", "qwen3", "gemma3"])  # fmt: skip
def test_render__templates_of_the_families(source: str, text: str) -> None:
    """Llama 3's, Qwen 3's and Gemma 3's constructs give the prompts those models were trained with."""
    assert JinjaTemplate(source, {"bos_token": "<s>"}).render(TALK, answer=True) == text


def test_render__template_s_own_refusal() -> None:
    """What a template refuses is the request's fault."""
    with pytest.raises(InputError, match="roles must alternate"):
        JinjaTemplate(GEMMA3, {"bos_token": ""}).render([TALK[2], TALK[3]], answer=True)


def test_render__loop_controls_and_json() -> None:
    """`break` and `continue` work; JSON is written as in Hugging Face's templates."""
    source = (
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% break %}{% endfor %}"
        "{{ {'b': 'é', 'a': 1} | tojson(indent=1, sort_keys=true, separators=(',', ':'), ensure_ascii=true) }}"
    )

    assert JinjaTemplate(source, {}).render(TALK, answer=False) == 'Hi{\n "a":1,\n "b":"\\u00e9"\n}'


@pytest.mark.parametrize("source", ["{% for %}", "{{ messages[0].__class__.__mro__ }}"])
def test_template__cannot_be_or_do_anything_else(source: str) -> None:
    """Broken templates are a fault of the package; the sandbox gives nothing of Python away."""
    with pytest.raises((ModelError, InputError)):
        JinjaTemplate(source, {}).render([{"role": "user", "content": "a"}], answer=True)


def test_token_names__by_their_texts() -> None:
    """The first of several ends; a token without a text of its own is none."""
    specials = {"<s>": 1, "</s>": 2, "<|end|>": 5}
    assert token_names(specials, 1, [5, 2]) == {"bos_token": "<s>", "eos_token": "</s>"}
    assert token_names(specials, None, [9]) == {"bos_token": "", "eos_token": ""}
    assert token_names(specials, 7, []) == {"bos_token": "", "eos_token": ""}


PIECES = Pieces(
    start={role: f"<{role}>" for role in ROLES},
    between={one: {other: f"</{one}><{other}>" for other in ROLES} for one in ROLES},
    end={role: (f"</{role}>", f"</{role}><answer>") for role in ROLES},
    trimmed=("user",),
)


def test_pieces__between_what_was_said() -> None:
    """Nothing of a message is changed, but for white space where the template trims it."""
    assert PIECES.render(TALK[:1], answer=False) == "<system>Be brief.</system>"
    talk = [*TALK[:2], {"role": "tool", "content": " {x} <user> "}, TALK[3]]
    assert PIECES.render(talk, answer=True) == (
        "<system>Be brief.</system><user>Hi</user><tool> {x} <user> </tool><user>Bye</user><answer>"
    )


def test_pieces__packed_and_unpacked() -> None:
    """The same, as JSON; also from a mapped package."""
    assert Pieces.unpack(memoryview(PIECES.pack())) == PIECES
    assert json.loads(PIECES.pack())["end"]["user"] == ["</user>", "</user><answer>"]


@pytest.mark.parametrize(("change", "found"), [
    (lambda fields: fields.pop("end"), "KeyError: 'end'"),
    (lambda fields: fields["start"].pop("tool"), "KeyError: 'tool'"),
    (lambda fields: fields["between"]["user"].update(user=3), "TypeError: 3 is no text"),
    (lambda fields: fields.update(end={role: ["x"] for role in ROLES}), "IndexError"),
    (lambda fields: fields.update(trimmed=7), "TypeError"),
    (lambda fields: fields["start"].update(user="\ud800"), "UnicodeEncodeError"),
])  # fmt: skip
def test_pieces__that_are_none(change: Any, found: str) -> None:
    """A broken asset is a fault of the package."""
    fields = json.loads(PIECES.pack())
    change(fields)
    with pytest.raises(ModelError, match=f"no pieces of a chat template.*{found}"):
        Pieces.unpack(json.dumps(fields).encode())
    for data in (b"{", b"[" * 100_000):
        with pytest.raises(ModelError, match="no pieces"):
            Pieces.unpack(data)


def test_pieces__need_no_jinja() -> None:
    """A start imports it for a template only."""
    code = (
        "import sys; from dpfedge.chat import JinjaTemplate, Pieces; import dpfedge.stage.llm.template\n"
        "assert 'jinja2' not in sys.modules; JinjaTemplate('x', {}); assert 'jinja2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
