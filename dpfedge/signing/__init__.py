# SPDX-License-Identifier: Apache-2.0
"""Keys, COSE signatures of packages and the trust directory: who made a package, and whether this machine trusts them."""
