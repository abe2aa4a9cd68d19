# SPDX-License-Identifier: Apache-2.0
"""The objects a stage works with, straight from the compiled core; nothing is wrapped, so nothing is added per call.

Views and arrays. `Loan.view` and `Lease.view` are memoryviews that become unusable (`ValueError`) when the loan or
lease ends. A NumPy array cannot be taken back: while one over a slot is alive, its slot is not given to anybody else,
so the array goes on showing the same bytes. Drop arrays before `send` and `release`, or slots run out.
"""

from __future__ import annotations

from dpfedge._core import Bell, Consumer, Lease, Loan, Producer, RequestTable

__all__ = ["Bell", "Consumer", "Lease", "Loan", "Producer", "RequestTable"]
