"""The state of a cluster at one moment, gathered by several calls for `ottla cluster describe`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla_client.errors import ClientError, UnsupportedApiError
from ottla_protocol.api_keys import api_title

if TYPE_CHECKING:
    from ottla_client.admin import Admin, ClusterDescription, LogDir, PartitionReassignment, VersionRange
    from ottla_client.types import PartitionMetadata, TopicMetadata, TopicPartition

_MIN_ISR: Final = "min.insync.replicas"
MOVES_UNKNOWN: Final = "what moves is not known: "
"""How the remark begins that says why."""
# How long brokers may take to report sizes, which matter least: a broker may be frozen.
_SIZES_SECONDS: Final = 3.0
KINDS: Final = ("offline", "below-min-isr", "under-replicated")


class Problem(NamedTuple):
    """An unhealthy partition; ``problem`` is one of KINDS."""

    topic: str
    partition: int
    problem: str
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int | None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """``moving`` is None where brokers don't support reassignment; ``remarks`` says what could not be found out."""

    description: ClusterDescription
    topics: Mapping[str, TopicMetadata]
    minimums: Mapping[str, int]
    folders: Mapping[int, tuple[LogDir, ...]]
    moving: Mapping[TopicPartition, PartitionReassignment] | None
    remarks: tuple[str, ...] = ()
    problems: list[Problem] = field(init=False)
    brokers: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "problems", list(problems_of(self.topics, self.minimums)))
        object.__setattr__(self, "brokers", _brokers(self.description, self.topics, self.folders))

    @property
    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    @property
    def down(self) -> list[int]:
        """The brokers that have replicas but aren't running."""
        return [row["broker"] for row in self.brokers if row["address"] is None]

    @property
    def not_preferred(self) -> int:
        """The number of partitions that aren't led by their preferred replica, the first."""
        return sum(
            partition.leader is not None and partition.leader != partition.replicas[0]
            for topic in self.topics.values()
            for partition in topic.partitions.values()
            if partition.replicas
        )

    def count(self, kind: str) -> int:
        return sum(problem.problem == kind for problem in self.problems)


async def look(admin: Admin) -> ClusterState:
    """Ask for all of it. Raises ClientError; what a user may not see becomes a remark."""
    remarks: list[str] = []
    # Brokers come last, so that they are up to date: a broker that just failed delays the calls before.
    folders = await log_dirs(admin, remarks)
    description = await admin.describe_cluster()
    if all(node.id in folders for node in description.nodes):
        remarks.clear()  # a broker that didn't answer has ended, which the description shows
    topics = await admin.list_topics(include_internal=True)
    minimums = await minimums_of(admin, topics, remarks)
    moving = await moves_of(admin, remarks)
    return ClusterState(description, topics, minimums, folders, moving, tuple(remarks))


async def minimums_of(admin: Admin, topics: Collection[str], remarks: list[str]) -> dict[str, int]:
    """min.insync.replicas by topic; empty, with a remark, if this user may not see it."""
    from ottla_client.admin import ConfigResource

    if not topics:
        return {}
    resources = [ConfigResource.topic(name) for name in topics]
    try:
        found = await admin.describe_configs(resources, keys=[_MIN_ISR])
    except ClientError as error:
        remarks.append(f"{_MIN_ISR} of topics is not known: {error}")
        return {}
    return {
        resource.name: int(entry.value)
        for resource, entries in found.items()
        if (entry := entries.get(_MIN_ISR)) and entry.value
    }


async def log_dirs(
    admin: Admin, remarks: list[str], brokers: Collection[int] | None = None
) -> dict[int, tuple[LogDir, ...]]:
    """The log folders of these brokers, or of all; a broker that doesn't answer is left out, with a remark."""
    from ottla_client.admin import PartialError

    try:
        return await admin.describe_log_dirs(brokers, timeout=_SIZES_SECONDS)
    except ClientError as error:
        remarks.append(f"sizes of logs are not all known: {error}")
        return error.results if isinstance(error, PartialError) else {}


async def moves_of(admin: Admin, remarks: list[str]) -> Mapping[TopicPartition, PartitionReassignment] | None:
    """The moving partitions; None where brokers don't support reassignment, or don't say, which is a remark."""
    try:
        return await admin.list_partition_reassignments()
    except UnsupportedApiError:
        return None
    except ClientError as error:
        remarks.append(f"{MOVES_UNKNOWN}{error}")
        return None


def problems_of(topics: Mapping[str, TopicMetadata], minimums: Mapping[str, int]) -> Iterator[Problem]:
    for name, topic in topics.items():
        for number, partition in sorted(topic.partitions.items()):
            minimum = minimums.get(name)
            if (problem := problem_of(partition, minimum)) is not None:
                yield Problem(
                    name, number, problem, partition.leader, partition.replicas, partition.isr, minimum
                )


def problem_of(partition: PartitionMetadata, minimum: int | None) -> str | None:
    if partition.leader is None:
        return "offline"
    # As brokers do, count with at most as many as there are replicas.
    if minimum is not None and len(partition.isr) < min(minimum, len(partition.replicas)):
        return "below-min-isr"
    return "under-replicated" if len(partition.isr) < len(partition.replicas) else None


def _brokers(
    description: ClusterDescription,
    topics: Mapping[str, TopicMetadata],
    folders: Mapping[int, tuple[LogDir, ...]],
) -> list[dict[str, Any]]:
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    for topic in topics.values():
        for partition in topic.partitions.values():
            if partition.leader is not None:
                leads[partition.leader] = leads.get(partition.leader, 0) + 1
            for replica in partition.replicas:
                holds[replica] = holds.get(replica, 0) + 1
    known = {node.id: node for node in description.nodes}
    rows = []
    for node_id in sorted({*known, *holds}):
        node = known.get(node_id)
        its = folders.get(node_id)
        usable = [folder.usable_bytes for folder in its or () if folder.usable_bytes is not None]
        rows.append(
            {
                "broker": node_id,
                "address": None if node is None else f"{node.host}:{node.port}",
                "rack": None if node is None else node.rack,
                "controller": node_id == description.controller_id,
                "leads": leads.get(node_id, 0),
                "replicas": holds.get(node_id, 0),
                "size": None
                if its is None
                else sum(log.size for folder in its for log in folder.replicas.values()),
                "free": min(usable) if usable else None,
            }
        )
    return rows


def document(
    state: ClusterState, served: Mapping[int, Mapping[int, VersionRange]] | None = None
) -> dict[str, Any]:
    """The whole state; ``served`` adds the APIs of each broker."""
    brokers = [
        {
            **row,
            "log_dirs": [
                {
                    "path": folder.path,
                    "replicas": len(folder.replicas),
                    "size": sum(log.size for log in folder.replicas.values()),
                    "total": folder.total_bytes,
                    "free": folder.usable_bytes,
                    "error": folder.error,
                }
                for folder in state.folders.get(row["broker"], ())
            ],
        }
        for row in state.brokers
    ]
    for row in brokers:
        if served and row["broker"] in served:
            row["apis"] = {api_title(key): list(versions) for key, versions in served[row["broker"]].items()}
    return {
        "cluster_id": state.description.cluster_id,
        "controller": state.description.controller_id,
        "topics": len(state.topics),
        "partitions": state.partitions,
        **{kind.replace("-", "_"): state.count(kind) for kind in KINDS},
        "not_preferred": state.not_preferred,
        "moving": None if state.moving is None else len(state.moving),
        "brokers": brokers,
        "problems": [problem._asdict() for problem in state.problems],
    }
