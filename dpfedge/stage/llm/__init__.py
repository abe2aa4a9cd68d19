# SPDX-License-Identifier: Apache-2.0
"""Messages in, tokens out as text: to the caller as they come, to the voice clause by clause."""

from dpfedge.stage.llm.stage import LlmStage

__all__ = ["LlmStage"]
