# SPDX-License-Identifier: Apache-2.0
"""The OpenCL backend as a plugin; importing it imports no pyopencl and probes nothing."""
