"""Admin's calls for leader elections and partition reassignments, which the controller carries out."""

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
from ..requests.driver import Node, Outcomes, by_topic
from ..requests.outcomes import error_of, outcome_of
from ..types import TopicPartition
from .arguments import listed
from .base import AdminBase
from .results import results_or_raise
from .values import ElectionType, PartitionReassignment

if TYPE_CHECKING:
    from ..deadline import Deadline

# ElectLeaders supports unclean elections from this version on (KIP-460, Kafka 2.4).
_UNCLEAN_SINCE: Final = 1
# The single item that `drive` gets for a request about everything.
_ALL: Final = "all partitions"


class PlacementCalls(AdminBase):
    async def elect_leaders(
        self,
        election: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect leaders (KIP-460, from Kafka 2.2 on). The result says whether each partition got another leader.

        PREFERRED makes each partition's first replica the leader if it is in sync. UNCLEAN makes any live replica the
        leader of a partition without one; records that this replica lacks are lost for good. None stands for all
        partitions; those that need no election are left out of the result then.

        Raises BrokerError, for example with PREFERRED_LEADER_NOT_AVAILABLE; PartialError for several partitions.
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
                # It applies to all partitions, even if they repeat it.
                raise error_of(answer.error_code, f"controller {node}")
            return {
                TopicPartition(topic.topic, result.partition_id): _elected(topic.topic, result)
                for topic in answer.replica_election_results
                for result in topic.partition_result
            }

        deadline = self._deadline(timeout)
        if wanted is None:
            return results_or_raise("elect leaders", await self._of_all("elect leaders", ask, deadline))
        return await self._ask_each("elect leaders", wanted, self._controller(), ask, deadline)

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float | None = None
    ) -> None:
        """Start moving partitions to other replicas, the preferred leader first; None cancels a move (KIP-455).

        Returns when all moves have started; ``list_partition_reassignments`` shows their progress. Needs Kafka 2.4.
        Raises BrokerError, for example with INVALID_REPLICA_ASSIGNMENT or NO_REASSIGNMENT_IN_PROGRESS; PartialError for
        several partitions.
        """

        async def ask(
            node: Node, some: list[TopicPartition], deadline: Deadline
        ) -> Outcomes[TopicPartition, None]:
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

        await self._ask_each("reassign partitions", replicas, self._controller(), ask, timeout)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The moving partitions, of these or of all (KIP-455, from Kafka 2.4 on).

        Partitions that aren't moving or don't exist are left out. Raises BrokerError.
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

        found = await self._of_all("list reassignments", ask, timeout)
        return dict(sorted(found.items()))

    async def _of_all(self, what: str, ask: Any, timeout: float | Deadline | None) -> Any:
        """One request to the controller that isn't about single items. Raises its error."""

        async def ask_once(node: Node, keys: list[str], deadline: Deadline) -> Mapping[str, Any]:
            return dict.fromkeys(keys, await ask(node, None, deadline))

        return (await self._ask_each(what, [_ALL], self._controller(), ask_once, timeout))[_ALL]


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
