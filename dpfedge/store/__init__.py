# SPDX-License-Identifier: Apache-2.0
"""Installed packages on this machine: two slots for each name, switched at once, safe against loss of power."""
