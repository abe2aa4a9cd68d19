# SPDX-License-Identifier: Apache-2.0
"""Who made a package: keys and trust directories in, signatures of manifests made and checked.

TRUST.md says who is refused when, package/FORMAT.md has the bytes. Nothing here looks at sections: the manifest that is
signed holds their digests, and `dpfedge.package` compares them.
"""

from __future__ import annotations

from dpfedge.signing.check import Finding, Signer, examine, require_signature
from dpfedge.signing.keys import PrivateKey, PublicKey
from dpfedge.signing.sign import sign_package
from dpfedge.signing.trust import Trust

__all__ = [
    "Finding", "PrivateKey", "PublicKey", "Signer", "Trust", "examine", "require_signature", "sign_package",
]  # fmt: skip
