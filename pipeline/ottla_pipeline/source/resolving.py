"""Resolves the options for start and end to offsets, by asking brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla_client import TopicPartition

from . import positions
from .cluster_queries import ClusterQueries
from .errors import OptionError, SourceError
from .offsets import names
from .options import SourceOptions
from .positions import Kind, Position


def start_of(
    cluster: ClusterQueries, options: SourceOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset to start at in each of these partitions. Raises OptionError."""
    position = options.starting
    if position.kind is Kind.GROUP:
        assert options.group is not None, "checked with the options"
        committed = cluster.group_offsets(options.group, partitions)
        return {**cluster.earliest(set(partitions) - committed.keys()), **committed}
    return _resolved(cluster, options, position, partitions)


def end_of(
    cluster: ClusterQueries, options: SourceOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets to end at. Raises OptionError, and SourceError for an offset beyond the last stable one."""
    ends = _resolved(cluster, options, options.ending, partitions)
    if options.isolation == "read_committed" and options.ending.kind is not Kind.LATEST:
        stable = cluster.latest(partitions, options.isolation)
        for partition, last in cluster.latest(partitions).items():
            if stable[partition] >= ends[partition]:
                continue
            if options.ending.kind is Kind.OFFSETS and ends[partition] <= last:
                raise SourceError(
                    f"{options.ending.option} of {partition} is {ends[partition]}, and a transaction is open from"
                    f" offset {stable[partition]} on: read up to there, or when it has ended"
                )
            if options.ending.kind is not Kind.OFFSETS:
                ends[partition] = stable[partition]
    return ends


def _resolved(
    cluster: ClusterQueries,
    options: SourceOptions,
    position: Position,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    if position.kind is Kind.EARLIEST:
        return cluster.earliest(partitions)
    if position.kind is Kind.LATEST:
        return cluster.latest(partitions, options.isolation)
    if position.kind is Kind.OFFSETS:
        return _offsets(cluster, options, _of(position, partitions))
    times = (
        dict.fromkeys(partitions, position.time) if position.kind is Kind.TIME else _of(position, partitions)
    )
    found = cluster.by_time(times)
    without = sorted(partition for partition, offset in found.items() if offset is None)
    if without and not position.or_latest:
        raise OptionError(
            f"{position.option}: no record of {without[0]} is as late as {times[without[0]]};"
            " set startingOffsetsByTimestampStrategy=latest to start after the last one"
        )
    ends = cluster.latest(without, options.isolation)
    return {partition: ends[partition] if offset is None else offset for partition, offset in found.items()}


def _of(position: Position, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    """The option's values by partition. Raises OptionError unless it names exactly these partitions."""
    given = position.of or {}
    if missing := set(partitions) - given.keys():
        hint = " (-2 for earliest, -1 for latest)" if position.kind is Kind.OFFSETS else ""
        raise OptionError(f"{position.option} says nothing of {names(missing)}; name every partition{hint}")
    if beyond := given.keys() - set(partitions):
        raise OptionError(
            f"{position.option} names {names(beyond)}, which is not among the partitions to read"
        )
    return given


def _offsets(
    cluster: ClusterQueries, options: SourceOptions, given: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    earliest = cluster.earliest([each for each, offset in given.items() if offset == positions.EARLIEST])
    latest = cluster.latest(
        [each for each, offset in given.items() if offset == positions.LATEST], options.isolation
    )
    return {**given, **earliest, **latest}
