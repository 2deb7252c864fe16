"""From candidates and a prompt to an ordered list of endpoints: filter, score, pick, fallbacks."""

from ext_proc.pick.backlog import Backlog
from ext_proc.pick.candidates import Candidates, LoadColumns, PoolShape
from ext_proc.pick.cost_terms import COST_TERMS
from ext_proc.pick.filters import FILTERS
from ext_proc.pick.pickers import PICKERS
from ext_proc.pick.pool import PoolState
from ext_proc.pick.profile import SchedulerProfile
from ext_proc.pick.request import PickRequest
from ext_proc.pick.result import Considered, Decision, PickResult, Reason, Refusal

__all__ = [
    "COST_TERMS",
    "FILTERS",
    "PICKERS",
    "Backlog",
    "Candidates",
    "Considered",
    "Decision",
    "LoadColumns",
    "PickRequest",
    "PickResult",
    "PoolShape",
    "PoolState",
    "Reason",
    "Refusal",
    "SchedulerProfile",
]
