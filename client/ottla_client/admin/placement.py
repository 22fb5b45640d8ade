"""Admin's calls about where partitions are and who leads them: elections and reassignments, by the controller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from ..errors import ClientError, UnsupportedApiError
from ..requests.driver import Node, ToController, by_topic
from ..requests.outcomes import error_of, outcome_of
from ..types import TopicPartition
from .arguments import listed
from .base import AdminBase
from .results import results_or_raise
from .values import ElectionType, PartitionReassignment

if TYPE_CHECKING:
    from ..deadline import Deadline

# Unclean elections can be asked for from this version of ElectLeaders on (KIP-460, Kafka 2.4).
_UNCLEAN_SINCE: Final = 1
# A question about everything there is goes through `drive` as this one item.
_ALL: Final = "all partitions"


class PlacementCalls(AdminBase):
    """What Admin does with replicas and leaders."""

    async def elect_leaders(
        self,
        election: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect leaders anew (KIP-460, Kafka 2.2 on): whether each partition got another one, or needed none.

        PREFERRED makes each partition's first replica the leader, if it is in sync. UNCLEAN finds any live replica
        for a partition without a leader: records that this replica doesn't have are lost for good. None stands for
        all partitions; then those that need no election are left out of the result.

        Raises BrokerError, as with PREFERRED_LEADER_NOT_AVAILABLE; PartialError if there are several partitions.
        """
        wanted = None if partitions is None else listed(partitions, TopicPartition)

        async def ask(node: Node, some: list[TopicPartition] | None, deadline: Deadline) -> _Outcomes:
            version = await self._version(node, ApiKey.ELECT_LEADERS, deadline)
            if election is not ElectionType.PREFERRED and version < _UNCLEAN_SINCE:
                raise UnsupportedApiError(
                    f"an unclean election: broker {node} is too old for it (before Kafka 2.4)"
                )
            request = ElectLeadersRequest(
                election_type=int(election),
                topic_partitions=None
                if some is None
                else [
                    TopicPartitions(topic=topic, partitions=[p.partition for p in its])
                    for topic, its in by_topic(some).items()
                ],
                timeout_ms=self._broker_ms(deadline),
            )
            answer = await self._call(node, request, deadline, version)
            if answer.error_code:
                # Also where partitions have the code themselves: it stands for all of them.
                raise error_of(answer.error_code, f"controller {node}")
            return {
                TopicPartition(topic.topic, result.partition_id): _elected(topic.topic, result)
                for topic in answer.replica_election_results
                for result in topic.partition_result
            }

        deadline = self._deadline(timeout)
        if wanted is None:
            return results_or_raise("elect leaders", await self._of_all("elect leaders", ask, deadline))
        route: ToController[TopicPartition] = ToController(self._cluster)
        return await self._each("elect leaders", wanted, route, ask, deadline)

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float | None = None
    ) -> None:
        """Begin to move partitions to other replicas, the preferred leader first; None stops moving (KIP-455).

        This is done when all moves have begun; ``list_partition_reassignments`` tells what still moves. Needs Kafka
        2.4 on. Raises BrokerError, as with INVALID_REPLICA_ASSIGNMENT or NO_REASSIGNMENT_IN_PROGRESS; PartialError
        if there are several partitions.
        """

        async def ask(
            node: Node, some: list[TopicPartition], deadline: Deadline
        ) -> Mapping[TopicPartition, ClientError | None]:
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._broker_ms(deadline),
                topics=[
                    ReassignableTopic(name=topic, partitions=[_reassignable(p, replicas[p]) for p in its])
                    for topic, its in by_topic(some).items()
                ],
            )
            answer = await self._call(node, request, deadline)
            if answer.error_code:
                raise error_of(answer.error_code, f"controller {node}", answer.error_message)
            return {
                partition: outcome_of(result.error_code, None, f"partition {partition}", result.error_message)
                for topic in answer.responses
                for result in topic.partitions
                for partition in [TopicPartition(topic.name, result.partition_index)]
            }

        route: ToController[TopicPartition] = ToController(self._cluster)
        await self._each("reassign partitions", replicas, route, ask, self._deadline(timeout))

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The partitions, of these or of all, that are being moved (KIP-455, Kafka 2.4 on).

        Partitions that don't move, or aren't there, are left out. Raises BrokerError.
        """
        wanted = None if partitions is None else listed(partitions, TopicPartition)
        if wanted is not None and not wanted:
            self._deadline(timeout)
            return {}

        async def ask(
            node: Node, _: list[TopicPartition] | None, deadline: Deadline
        ) -> dict[TopicPartition, PartitionReassignment]:
            request = ListPartitionReassignmentsRequest(
                timeout_ms=self._broker_ms(deadline),
                topics=None
                if wanted is None
                else [
                    ListPartitionReassignmentsTopics(name=topic, partition_indexes=[p.partition for p in its])
                    for topic, its in by_topic(wanted).items()
                ],
            )
            answer = await self._call(node, request, deadline)
            if answer.error_code:
                raise error_of(answer.error_code, f"controller {node}", answer.error_message)
            return {
                TopicPartition(topic.name, moving.partition_index): PartitionReassignment(
                    tuple(moving.replicas), tuple(moving.adding_replicas), tuple(moving.removing_replicas)
                )
                for topic in answer.topics
                for moving in topic.partitions
            }

        found = await self._of_all("list reassignments", ask, self._deadline(timeout))
        return dict(sorted(found.items()))

    async def _of_all(self, what: str, ask: Any, deadline: Deadline) -> Any:
        """One question to the controller that isn't about single items; raises its error."""

        async def ask_once(node: Node, keys: list[str], deadline: Deadline) -> Mapping[str, Any]:
            return dict.fromkeys(keys, await ask(node, None, deadline))

        route: ToController[str] = ToController(self._cluster)
        return (await self._each(what, [_ALL], route, ask_once, deadline))[_ALL]


_Outcomes = Mapping[TopicPartition, "bool | ClientError"]


def _elected(topic: str, result: Any) -> bool | ClientError:
    if result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
        return False
    return outcome_of(
        result.error_code, True, f"partition {topic}-{result.partition_id}", result.error_message
    )


def _reassignable(partition: TopicPartition, replicas: Collection[int] | None) -> ReassignablePartition:
    return ReassignablePartition(
        partition_index=partition.partition, replicas=None if replicas is None else list(replicas)
    )
