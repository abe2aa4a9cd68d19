# SPDX-License-Identifier: Apache-2.0
"""Attention and its caches."""

from __future__ import annotations

import numpy as np
import pytest
from made_flavours import BOTH, agree, floats, one
from made_nodes import Array, device

from dpfedge.testing.loading import load


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("head", [16, 36, 5])
def test_multi_head_attention__of_any_head(head: int, causal: int, flavour: str) -> None:
    """Heads that vectors of 16, of 4 and of 1 divide; more keys than an item takes at once."""
    feeds = {name: floats(2, 19, 2 * head, seed=at) for at, name in enumerate("qkv")}
    agree(one("ms:MultiHeadAttention", feeds, num_heads=2, scale=0.3, unidirectional=causal), flavour, feeds)


@pytest.mark.parametrize("flavour", BOTH)
def test_multi_head_attention__keeps_keys_and_values(flavour: str) -> None:
    """Behind the past ones, and from keys that are heads already."""
    feeds = {name: floats(1, 2, 24, seed=at) for at, name in enumerate("qkv")}
    feeds |= {"pk": floats(1, 3, 5, 8, seed=4), "pv": floats(1, 3, 5, 8, seed=5)}
    made = one("ms:MultiHeadAttention", feeds, names="q k v - - - pk pv", outputs=3, num_heads=3, unidirectional=1)
    agree(made, flavour, feeds)
    cross = {"q": feeds["q"], "k": floats(1, 3, 7, 8, seed=6), "v": floats(1, 3, 7, 8, seed=7)}
    agree(one("ms:MultiHeadAttention", cross, num_heads=3), flavour, cross)


def _decoder(count: int, end: int) -> dict[str, Array]:
    return {
        "qkv": floats(1, count, 128, seed=1), "pk": floats(1, 2, 24, 16, seed=2), "pv": floats(1, 2, 24, 16, seed=3),
        "ends": np.array([[end - 1]], np.int32), "total": np.array(end, np.int32),
    }  # fmt: skip


_ANGLES = floats(32, 8, seed=9)
TABLES = {"cos": np.cos(_ANGLES), "sin": np.sin(_ANGLES)}
NAMES = "qkv - - pk pv ends total cos sin"


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("pairs", [0, 1])
@pytest.mark.parametrize(("count", "end", "window"), [(9, 9, -1), (1, 20, -1), (1, 24, 5), (9, 24, 3)])
def test_group_query_attention__of_prompts_and_steps(
    count: int, end: int, window: int, pairs: int, flavour: str
) -> None:
    """A prompt, a step, a window; heads turned as halves and as pairs."""
    feeds = _decoder(count, end)
    made = one(
        "ms:GroupQueryAttention", feeds, TABLES, outputs=3, names=NAMES, num_heads=4, kv_num_heads=2, do_rotary=1,
        rotary_interleaved=pairs, local_window_size=window,
    )  # fmt: skip
    agree(made, flavour, feeds)


def test_group_query_attention__writes_a_shared_cache_in_place() -> None:
    """What is bound as past and as present is never copied, and holds the new key afterwards."""
    feeds = _decoder(1, 20)
    made = one(
        "ms:GroupQueryAttention", feeds, TABLES, outputs=3, names=NAMES, num_heads=4, kv_num_heads=2, do_rotary=1
    )
    executable = load(*device(), made)
    wanted = {name: np.array(array) for name, array in executable.run(feeds).items()}
    caches = {"pk": feeds["pk"].copy(), "pv": feeds["pv"].copy()}
    binding = executable.bind()
    for name, array in (feeds | caches).items():
        binding.set_input(name, array)
    binding.set_output("y1", caches["pk"])
    binding.set_output("y2", caches["pv"])
    binding.run()
    assert np.array_equal(binding.output("y0"), wanted["y0"])
    assert np.array_equal(caches["pk"], wanted["y1"])
    assert np.array_equal(caches["pv"], wanted["y2"])
    executable.close()


def test_group_query_attention__of_more_than_fits_is_no_number() -> None:
    """The length lies in memory, where no check can refuse it; a wrong answer must not look like one."""
    feeds = _decoder(1, 20)
    made = one("ms:GroupQueryAttention", feeds, TABLES, outputs=3, names=NAMES, num_heads=4, kv_num_heads=2)
    executable = load(*device(), made)
    found = executable.run(feeds | {"ends": np.array([[24]], np.int32), "total": np.array(25, np.int32)})
    assert np.isnan(found["y0"]).all()
    executable.close()
