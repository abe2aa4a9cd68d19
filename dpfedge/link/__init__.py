# SPDX-License-Identifier: Apache-2.0
"""Zero-copy links: tensors go from one stage to the next inside memory both map; LINK.md is the protocol.

This room knows no models, no stages and no policy of the pipeline above it.
"""

from __future__ import annotations

from dpfedge.link.arena import Arena
from dpfedge.link.ports import Bell, Consumer, Lease, Loan, Producer, RequestTable
from dpfedge.link.ring import CANCELLED, ERROR, LAST, PARTIAL, Descriptor, LinkSpec, LinkStats

__all__ = [
    "CANCELLED",
    "ERROR",
    "LAST",
    "PARTIAL",
    "Arena",
    "Bell",
    "Consumer",
    "Descriptor",
    "Lease",
    "LinkSpec",
    "LinkStats",
    "Loan",
    "Producer",
    "RequestTable",
]
