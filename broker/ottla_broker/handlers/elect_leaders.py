"""ElectLeaders: preferred and unclean elections (KIP-460). Only the controller serves it.

Version 0 reports errors of partitions only. When all partitions are asked for, those that needed no election are left
out of the answer.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.controller.api import Outcome, Partition
from ottla_broker.requests.api import ALTER, CLUSTER, Api, MiB
from ottla_broker.requests.context import RequestContext, client_timeout
from ottla_broker.requests.inline import in_task
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import elect_leaders as wire

API = Api(43, (0, 2), needs={CLUSTER: ALTER}, memory=MiB // 2)

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_ERROR_CODE_SINCE: Final = 1
_NOT_NEEDED: Final = "Leader election not needed for topic partition."


async def handle(ctx: RequestContext, request: wire.ElectLeadersRequest) -> wire.ElectLeadersResponse:
    asked = request.topic_partitions
    wanted = (
        None if asked is None else [(topic.topic, index) for topic in asked for index in topic.partitions]
    )
    code = ErrorCode.NONE
    try:
        ctx.check(AclResource.CLUSTER)
        if request.election_type not in (_PREFERRED, _UNCLEAN):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        outcomes = await in_task(
            ctx.services.controller.elect_leaders(
                wanted, unclean=request.election_type == _UNCLEAN, timeout=client_timeout(request.timeout_ms)
            )
        )
    except KafkaError as error:
        code = error.code
        outcomes = {partition: Outcome(code) for partition in wanted or ()}
    if wanted is None:
        outcomes = {
            partition: outcome
            for partition, outcome in outcomes.items()
            if outcome.error is not ErrorCode.ELECTION_NOT_NEEDED
        }
    return wire.ElectLeadersResponse(
        error_code=code if ctx.version >= _ERROR_CODE_SINCE else ErrorCode.NONE,
        replica_election_results=_results(outcomes),
    )


def _results(outcomes: dict[Partition, Outcome]) -> list[wire.ReplicaElectionResult]:
    topics: dict[str, wire.ReplicaElectionResult] = {}
    for (name, index), outcome in outcomes.items():
        topic = topics.setdefault(name, wire.ReplicaElectionResult(topic=name, partition_result=[]))
        topic.partition_result.append(
            wire.PartitionResult(
                partition_id=index,
                error_code=outcome.error,
                error_message=_NOT_NEEDED
                if outcome.error is ErrorCode.ELECTION_NOT_NEEDED
                else outcome.message,
            )
        )
    return list(topics.values())
