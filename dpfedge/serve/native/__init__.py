# SPDX-License-Identifier: Apache-2.0
"""Conversations in shared memory for programs on this machine; `firmware_bridge/include/dpf/client.h` is their side."""
