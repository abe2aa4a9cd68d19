# SPDX-License-Identifier: Apache-2.0
"""What only the device can build, and baked prefixes, in a signed file beside the package."""
