# SPDX-License-Identifier: Apache-2.0
"""The HTTP and WebSocket faces of a runtime; importing it loads no web library."""
