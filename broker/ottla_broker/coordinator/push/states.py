"""The states of a group at the 2012 coordinator, as a table.

::

    IDLE --> COMPUTING --> STOPPING --> COMMITTING --> STARTING --> RECORDING --> IDLE
                 |             |             |             |             |
                 +--> IDLE     +-------------+-------------+-------------+--> BACKING_OFF --> COMPUTING

COMPUTING goes back to IDLE if no rebalance is necessary, or while the group waits for consumers that a coordinator
before this one knew. Every state goes to IDLE when the last consumer has gone.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class GroupState(Enum):
    IDLE = auto()
    COMPUTING = auto()
    """Steps 1 to 3: topics, partitions, the new owners, and whether a rebalance is necessary."""
    STOPPING = auto()
    """Steps 4.1 and 4.2."""
    COMMITTING = auto()
    """Step 4.3."""
    STARTING = auto()
    """Steps 4.4 and 4.5."""
    RECORDING = auto()
    """Step 4.6."""
    BACKING_OFF = auto()
    """Step 5."""


_S = GroupState
NEXT: Final[dict[GroupState, frozenset[GroupState]]] = {
    _S.IDLE: frozenset({_S.COMPUTING, _S.IDLE}),
    _S.COMPUTING: frozenset({_S.STOPPING, _S.BACKING_OFF, _S.IDLE}),
    _S.STOPPING: frozenset({_S.COMMITTING, _S.BACKING_OFF, _S.IDLE}),
    _S.COMMITTING: frozenset({_S.STARTING, _S.BACKING_OFF, _S.IDLE}),
    _S.STARTING: frozenset({_S.RECORDING, _S.BACKING_OFF, _S.IDLE}),
    _S.RECORDING: frozenset({_S.BACKING_OFF, _S.IDLE}),
    _S.BACKING_OFF: frozenset({_S.COMPUTING, _S.IDLE}),
}
