# SPDX-License-Identifier: Apache-2.0
"""Text in, speech out: clauses become samples in the outgoing slot while later clauses still arrive."""

from dpfedge.stage.voice.stage import VoiceStage

__all__ = ["VoiceStage"]
