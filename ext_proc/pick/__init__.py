"""From candidates and a prefix to an ordered list of endpoints: filter, score, choose."""

from ext_proc.pick.backlog import Backlog
from ext_proc.pick.candidates import Candidates, LoadColumns, PoolShape
from ext_proc.pick.composition import Composition
from ext_proc.pick.filters import FILTERS
from ext_proc.pick.pick import Considered, Meant, Pick, Question, Reason, Refusal
from ext_proc.pick.pickers import PICKERS
from ext_proc.pick.pool import PoolState
from ext_proc.pick.scorers import SCORERS

__all__ = [
    "FILTERS",
    "PICKERS",
    "SCORERS",
    "Backlog",
    "Candidates",
    "Composition",
    "Considered",
    "LoadColumns",
    "Meant",
    "Pick",
    "PoolShape",
    "PoolState",
    "Question",
    "Reason",
    "Refusal",
]
