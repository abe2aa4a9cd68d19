# SPDX-License-Identifier: Apache-2.0
"""Attention of the reference: what must hold whatever the numbers are; the suite compares it with onnxruntime's."""

from __future__ import annotations

import numpy as np
from dpfedge_reference.attention import GroupQueryAttention, attend, rotate

RANDOM = np.random.default_rng(3)


def random(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Values."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_attend__of_one_key_is_its_value() -> None:
    """Softmax over one score is one; grouped heads share it."""
    value = random(1, 2, 1, 4)
    found = attend(random(1, 4, 3, 4), random(1, 2, 1, 4), value, 1.0)

    np.testing.assert_allclose(found, np.repeat(value, 2, 1).repeat(3, 2), rtol=1e-6)


def test_rotate__keeps_lengths_and_turns_back() -> None:
    """A turn by an angle and by its negative is none; elements beyond `size` stay."""
    x, angles = random(1, 2, 3, 8), random(5, 2)
    where = np.array([[0, 4, 2]])
    for interleaved in (False, True):
        turned = rotate(x, where, np.cos(angles), np.sin(angles), interleaved=interleaved, size=4)
        back = rotate(turned, where, np.cos(angles), -np.sin(angles), interleaved=interleaved, size=4)
        np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5)
        np.testing.assert_allclose(back, x, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(turned[..., 4:], x[..., 4:])


def test_grouped__prompt_equals_steps() -> None:
    """Four tokens at once answer as four one after the other."""
    op = GroupQueryAttention.__new__(GroupQueryAttention)
    packed, empty = random(1, 4, 64), np.zeros((1, 2, 4, 8), np.float32)
    attributes = {"num_heads": 4, "kv_num_heads": 2}

    whole = op._run(packed, None, None, empty, empty, np.array([3]), np.array(4), **attributes)
    keys, values, rows = empty, empty, []
    for step in range(4):
        row, keys, values = op._run(
            packed[:, step : step + 1], None, None, keys, values, np.array([step]), np.array(step + 1), **attributes
        )
        rows.append(row)

    np.testing.assert_allclose(np.concatenate(rows, 1), whole[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(keys, whole[1])
