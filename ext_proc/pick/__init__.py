"""From candidates and a prefix to an ordered list of endpoints; `PICKERS` registers the strategies."""

from ext_proc.pick.backlog import Backlog
from ext_proc.pick.candidates import Candidates, LoadColumns, PoolShape
from ext_proc.pick.pick import Considered, Pick, Picker, Question, Reason, Refusal
from ext_proc.pick.pool import PoolState
from ext_proc.pick.strategies import PICKERS

__all__ = [
    "PICKERS",
    "Backlog",
    "Candidates",
    "Considered",
    "LoadColumns",
    "Pick",
    "Picker",
    "PoolShape",
    "PoolState",
    "Question",
    "Reason",
    "Refusal",
]
