# SPDX-License-Identifier: Apache-2.0
"""Routing in the kernel: connections to a service go to the instance that the table says.

`firmware_bridge/ebpf/README.md` is normative.
"""
