"""What a request takes longer than usual on an endpoint, see `ext_proc.pick.pace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ext_proc.pick.scorers.scorer import Scored

if TYPE_CHECKING:
    from ext_proc.pick.scene import Scene


def score(scene: Scene) -> Scored:
    """Bind to a tick."""
    if scene.paces is None:
        return Scored()
    return Scored(scene.paces.slow_seconds[scene.candidates.rows])
