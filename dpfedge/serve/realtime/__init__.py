# SPDX-License-Identifier: Apache-2.0
"""The OpenAI Realtime protocol (its generally available event names) over one session of the runtime."""
