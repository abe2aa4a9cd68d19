# SPDX-License-Identifier: Apache-2.0
"""Samples of an answer in, bytes of a sound format out."""
