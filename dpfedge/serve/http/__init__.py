# SPDX-License-Identifier: Apache-2.0
"""The OpenAI-compatible HTTP endpoints, one file each."""
