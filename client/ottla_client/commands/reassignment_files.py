"""Plans in files, in the JSON that Kafka's kafka-reassign-partitions reads and writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

import click

from ..types import TopicPartition

_VERSION: Final = 1
# Where on a broker a replica goes: it chooses.
_ANY: Final = "any"


def read_plan(file: TextIO) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of each partition in a file. Raises click.ClickException for one that isn't a plan."""

    def wrong(reason: str) -> click.ClickException:
        return click.ClickException(f"{file.name}: {reason}")

    try:
        document = json.load(file)
    except (UnicodeDecodeError, ValueError) as error:
        raise wrong(f"not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise wrong('not a plan: {"version": 1, "partitions": […]} is')
    if document.get("version", _VERSION) != _VERSION:
        raise wrong(f"version {document['version']!r} of plans is not known")
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for number, each in enumerate(document["partitions"], 1):
        try:
            partition, replicas = _entry(each)
        except ValueError as error:
            raise wrong(f"partition {number} of the list: {error}") from None
        if partition in plan:
            raise wrong(f"{partition} is there twice")
        plan[partition] = replicas
    if not plan:
        raise wrong("a plan without partitions")
    return plan


def _entry(each: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(each, dict):
        raise ValueError("not an object")
    topic, partition, replicas = (each.get(name) for name in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or not topic:
        raise ValueError("no topic")
    if type(partition) is not int or partition < 0:
        raise ValueError(f"{partition!r} is no partition")
    if (
        not isinstance(replicas, list)
        or not replicas
        or not all(type(broker) is int and broker >= 0 for broker in replicas)
    ):
        raise ValueError(f"replicas are a list of brokers' ids, not {replicas!r}")
    if len(set(replicas)) < len(replicas):
        raise ValueError(f"a broker is twice in its replicas {replicas}")
    folders = each.get("log_dirs")
    if folders is not None and folders != [_ANY] * len(replicas):
        raise ValueError('log_dirs can only be "any" for each replica: moves between folders are not made')
    return TopicPartition(topic, partition), tuple(replicas)


def write_plan(path: str, replicas: Mapping[TopicPartition, Iterable[int]]) -> None:
    """Raises OSError."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(brokers)}
        for tp, brokers in sorted(replicas.items())
    ]
    with open(path, "w", encoding="utf-8") as file:
        # A line a partition, so that plans can be compared and edited.
        lines = ",\n".join(f"  {json.dumps(each)}" for each in partitions)
        file.write(f'{{"version": {_VERSION}, "partitions": [\n{lines}\n]}}\n')
