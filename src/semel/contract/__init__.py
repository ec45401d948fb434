"""The product: keys, decisions, states, windows. Pure: nothing here waits, reads a clock or rolls dice."""

from semel.contract.decision import Admit, Join, Reason, Refuse, Replay, Reuse, decide
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, Execution, Explanation, Suppressed
from semel.contract.retry import Retry
from semel.contract.window import DedupWindow

__all__ = [
    "Admit",
    "DedupWindow",
    "ErrorInfo",
    "Execution",
    "Explanation",
    "Join",
    "Reason",
    "Refuse",
    "Replay",
    "Retry",
    "Reuse",
    "Status",
    "Suppressed",
    "decide",
]
