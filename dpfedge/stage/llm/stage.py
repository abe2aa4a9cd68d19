# SPDX-License-Identifier: Apache-2.0
"""The llm stage: chat messages or transcripts in, text to the sink and clauses to the voice out, a token per step.

Every request owns a place of key/value memory while it lives, so many are answered in turns. It knows no audio.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from dpfedge.backend.api import Budget
from dpfedge.binding import BoundModel
from dpfedge.chat import JinjaTemplate, Pieces, Template, token_names
from dpfedge.errors import ModelError
from dpfedge.package.prefix import Baked
from dpfedge.stage.api import Mode, RequestIO, Steps, Wait
from dpfedge.stage.join import Sync
from dpfedge.stage.live import adjusted
from dpfedge.stage.llm.baked import load_prefix, pack_prefix
from dpfedge.stage.llm.cache import Pool, Prefix
from dpfedge.stage.llm.config import LIVE, LlmConfig
from dpfedge.stage.llm.drawn import Drawn
from dpfedge.stage.llm.engine import prefill
from dpfedge.stage.llm.prompt import Prompts, opening
from dpfedge.stage.llm.replies import Replies
from dpfedge.stage.llm.template import ChatTemplate
from dpfedge.stage.llm.tokenizer import Library, Tokenizer
from dpfedge.stage.llm.turns import Chat, Converse, Parts
from dpfedge.vocabulary import Vocabulary

__all__ = ["LlmStage"]

_WARM = 2  # tokens; two at once and one alone touch every kernel


class LlmStage:
    """Owns one decoder-only language model."""

    name = "llm"
    sync: Sync | None = None
    """How `text` and `question` belong together in a drawn graph; whoever makes the stage sets it."""

    def __init__(self, model: BoundModel, config: Mapping[str, Any], budget: Budget) -> None:
        """`model`: a bound decoder with graph `llm` and the assets of its family (GRAPHS.md)."""
        self._own, settings = config, LlmConfig.of(config)
        # the graph last: a stage process loads it meanwhile
        tokenizer = _tokenizer(model)
        template = ChatTemplate(_template(model, tokenizer), tuple(tokenizer.specials))
        graph = model.load("llm", budget)
        pool = Pool(graph, places=settings.places, chunk=settings.chunk_tokens)
        self._title = settings.name or str(model.config.get("name", model.name))
        prompts = Prompts(template, tokenizer, int(model.config["bos"]) if model.config.get("add_bos") else None)
        first = opening(settings.system, settings.examples)
        shared = prompts.shared(first)
        pool.prefix, self._opening, refused = load_prefix(model, graph, settings.chunk_tokens, shared)
        for stale in refused:
            print(f"dpfedge: stage llm: {stale}", file=sys.stderr, flush=True)
        if pool.prefix is None and refused:
            self._opening = str(refused[0])
        self._model, self._graph = model, graph
        self._parts = Parts(
            settings=settings,
            tokenizer=tokenizer,
            prompts=prompts,
            pool=pool,
            ends=_ends(model),
            opening=first,
            shared=shared,
            replies=Replies(settings.replies, sums=settings.sums),
        )

    def warm(self) -> None:
        """Run a few tokens at once and one alone, so that every kernel has run."""
        parts, place = self._parts, self._parts.pool.take(())
        for _ in prefill(place, [0] * _WARM, parts.settings.chunk_tokens, _WARM):
            pass
        place.run((place.tokens[-1],))
        place.keep(0)
        parts.pool.give(place)

    def settle(self) -> Steps:
        """Run the opening of every conversation once, if none was baked, and keep its keys and values for all."""
        if self._parts.settings.warm_opening:
            yield from self._compute_opening()

    def bake(self) -> Baked | None:
        """The opening's keys and values for a package, computed here and now; None when there is no opening."""
        parts = self._parts
        parts.pool.prefix = None
        for _ in self._compute_opening():
            pass
        prefix = parts.pool.prefix
        return prefix and pack_prefix(self._model, self._graph, parts.settings.chunk_tokens, prefix)

    def _compute_opening(self) -> Steps:
        parts = self._parts
        if not parts.shared or parts.pool.prefix is not None:
            return
        place = parts.pool.take(())
        for _ in prefill(place, parts.shared, parts.settings.chunk_tokens, len(parts.shared)):
            yield Wait.STEP
        parts.pool.prefix = Prefix.of(place)
        place.keep(0)
        parts.pool.give(place)

    def facts(self) -> Mapping[str, Any]:
        """`name`, `context` in tokens, `places`, and `max_tokens` of an answer where the request gives none.

        `prefix`: where the opening's keys and values are from: `package`, `seal`, `none` (computed), or why the baked
        ones were refused.
        """
        parts = self._parts
        return {
            "name": self._title,
            "context": parts.pool.context,
            "places": parts.settings.places,
            "max_tokens": parts.settings.sampling.max_tokens,
            "prefix": self._opening,
        }

    def adjust(self, settings: Mapping[str, Any]) -> None:
        """Answer as configured, except for these settings (of `LIVE`), from the next answer on.

        What a request asks for by itself still counts.
        """
        self._parts.settings = LlmConfig.of(adjusted(self._own, settings, LIVE, "stage llm"))

    def request(self, io: RequestIO) -> Steps:
        """CHAT: one answer to START's messages. CONVERSE: turns until the request ends. RUN: answers to its inputs."""
        if io.mode is Mode.CHAT:
            return Chat(self._parts, io).run()
        if io.mode is Mode.RUN:
            return Drawn(self._parts, io, self.sync).run()
        return Converse(self._parts, io).run()


def _ends(model: BoundModel) -> frozenset[int]:
    ends = frozenset(int(token) for token in model.config.get("eos", ()))
    if not ends:
        raise ModelError(
            "no end token is known", where=f"model {model.name}: config.eos", allowed="a list of token ids"
        )
    return ends


def _tokenizer(model: BoundModel) -> Tokenizer:
    """On the compiler's tables, where it proved them."""
    if "vocabulary.tables" in model.assets:
        return Tokenizer(Vocabulary(model.asset("vocabulary.tables")))
    return Tokenizer(Library(model.asset("tokenizer.json")))


def _template(model: BoundModel, tokenizer: Tokenizer) -> Template:
    """By the pieces that the compiler proved, where it could; a package of before has none."""
    if "chat_template.pieces" in model.assets:
        return Pieces.unpack(model.asset("chat_template.pieces"))
    names = token_names(tokenizer.specials, model.config.get("bos"), sorted(_ends(model)))
    return JinjaTemplate(str(model.asset("chat_template.jinja"), "utf-8"), names)
