"""NVIDIA Dynamo's KV router.

Source: `docs/components/router/router-concepts.md` of github.com/ai-dynamo/dynamo; its default weights are 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from warmroute.replay.trace import TraceRequest


class Dynamo(Observer):
    """Prefill cost + decode cost, in blocks.

    Prefill: prompt work that the engine has to do, with the request's own. Decode: distinct blocks in use,
    with the request's own that are not in use there.
    """

    name = "dynamo"

    def pick(self, request: TraceRequest) -> int:
        """Return the cheapest."""
        prefill = (self.waiting_tokens + self.cold(request)) / self.block_tokens
        decode = [
            len(active) + sum(block not in active for block in request.blocks)
            for active in self.active_blocks
        ]
        return self.least(prefill + np.array(decode, float))
