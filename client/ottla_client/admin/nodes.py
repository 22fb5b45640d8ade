"""Admin's calls for the cluster and its brokers."""

from __future__ import annotations

from collections.abc import Iterable

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult

from ..deadline import Deadline
from ..requests.driver import Node, Outcomes
from ..requests.outcomes import error_of, outcome_of
from ..types import TopicPartition
from .base import AdminBase
from .values import ClusterDescription, LogDir, ReplicaLog, VersionRange


class NodeCalls(AdminBase):
    async def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, controller and live brokers, freshly fetched."""
        await self._cluster.fetch_topics((), self._deadline(timeout))
        nodes = sorted(self._cluster.nodes.values(), key=lambda node: node.id)
        return ClusterDescription(self._cluster.cluster_id, self._cluster.controller_id, tuple(nodes))

    async def describe_apis(
        self, nodes: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> dict[int, dict[int, VersionRange]]:
        """The versions that brokers serve, by broker and API key; all brokers if none are named.

        Keys are numbers, because a broker may have APIs that this client doesn't know.
        """

        async def ask(
            node: Node, its: list[int], deadline: Deadline
        ) -> Outcomes[int, dict[int, VersionRange]]:
            version = await self._version(node, ApiKey.API_VERSIONS, deadline)
            request = ApiVersionsRequest(client_software_name="ottla", client_software_version="admin")
            answer = await self._call(node, request, deadline, version)
            ranges = {api.api_key: VersionRange(api.min_version, api.max_version) for api in answer.api_keys}
            return dict.fromkeys(
                its, outcome_of(answer.error_code, dict(sorted(ranges.items())), f"broker {node}")
            )

        return await self._ask_nodes("describe APIs", nodes, ask, timeout)

    async def describe_log_dirs(
        self,
        nodes: Iterable[int] | None = None,
        *,
        topics: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> dict[int, tuple[LogDir, ...]]:
        """Log directories by broker, with their replicas and sizes (KIP-113, from Kafka 1.0 on).

        Asks all brokers if none are named, and only for ``topics`` if given. Raises BrokerError; PartialError for
        several brokers.
        """
        wanted = None if topics is None else frozenset(topics)

        async def ask(node: Node, its: list[int], deadline: Deadline) -> Outcomes[int, tuple[LogDir, ...]]:
            answer = await self._call(node, DescribeLogDirsRequest(topics=None), deadline)
            if answer.error_code:
                return dict.fromkeys(its, error_of(answer.error_code, f"broker {node}"))
            return dict.fromkeys(its, tuple(_log_dir(result, wanted) for result in answer.results))

        return await self._ask_nodes("describe log directories", nodes, ask, timeout)


def _log_dir(result: DescribeLogDirsResult, wanted: frozenset[str] | None) -> LogDir:
    return LogDir(
        result.log_dir,
        {
            TopicPartition(topic.name, replica.partition_index): ReplicaLog(
                replica.partition_size, replica.offset_lag, replica.is_future_key
            )
            for topic in result.topics
            if wanted is None or topic.name in wanted
            for replica in topic.partitions
        },
        None if result.total_bytes < 0 else result.total_bytes,
        None if result.usable_bytes < 0 else result.usable_bytes,
        result.error_code,
    )
