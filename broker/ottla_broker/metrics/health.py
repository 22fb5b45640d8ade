"""Tells whether a broker is ready for clients, and if not, why: for ``/health/ready``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.replica.partition import Role
from ottla_broker.store.api import SessionState

if TYPE_CHECKING:
    from ottla_broker.metrics.sources import Sources


class Problem(NamedTuple):
    """A reason why a broker isn't ready.

    Attributes:
        check: a short name that doesn't change.
        reason: one sentence.
        action: what to do.
    """

    check: str
    reason: str
    action: str


STARTING: Final = Problem(
    "started",
    "The broker is starting; it may be recovering logs.",
    "Wait; the broker's log shows the progress.",
)
STOPPING: Final = Problem("stopping", "The broker is stopping.", "Send clients to another broker.")


def problems(sources: Sources) -> list[Problem]:
    """Return what keeps a started broker from serving its clients; empty if it is ready."""
    found = []
    member = sources.member
    if member is not None:
        if member.store.state is not SessionState.CONNECTED:
            found.append(
                Problem(
                    "zookeeper",
                    "There is no session with ZooKeeper.",
                    "Check that the servers in zookeeper.connect run and can be reached.",
                )
            )
        if not member.controller_requests.joined.is_set():
            found.append(
                Problem(
                    "joined",
                    "The controller has not described the cluster to this broker yet.",
                    "Check that the cluster has a controller and that it can reach this broker's listener.",
                )
            )
    failed = [folder.path for folder in sources.logs.folders if folder.failed]
    if failed:
        found.append(
            Problem(
                "data-folders",
                f"Data folders have failed: {', '.join(failed)}.",
                "Repair or replace the disk, then restart the broker.",
            )
        )
    offline = sum(each.role is Role.OFFLINE for each in sources.replicas.partitions())
    if offline and not failed:
        found.append(
            Problem(
                "logs",
                "1 partition is out of service because its log can't be used."
                if offline == 1
                else f"{offline} partitions are out of service because their logs can't be used.",
                "Look for `a partition is offline` in the broker's log, and run ottla log verify.",
            )
        )
    if sources.groups.loading:
        found.append(
            Problem("groups", "Groups are being loaded from __consumer_offsets.", "Wait; it takes seconds.")
        )
    if sources.transactions.loading:
        found.append(
            Problem(
                "transactions",
                "Transactional ids are being loaded from __transaction_state.",
                "Wait; it takes seconds.",
            )
        )
    return found
