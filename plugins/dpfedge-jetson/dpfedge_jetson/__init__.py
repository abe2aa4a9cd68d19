# SPDX-License-Identifier: Apache-2.0
"""The jetson backend as a plugin; importing it imports no native library and probes nothing."""
