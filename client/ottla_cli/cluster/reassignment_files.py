"""Plans in files, in the JSON that Kafka's kafka-reassign-partitions reads and writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

import click

from ottla_client.types import TopicPartition

_VERSION: Final = 1
# The broker chooses a replica's folder.
_ANY: Final = "any"


def read_plan(file: TextIO) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of each partition in a file. Raises click.ClickException for a file that isn't a plan."""

    def wrong(reason: str) -> click.ClickException:
        return click.ClickException(f"{file.name}: {reason}")

    try:
        document = json.load(file)
    except (UnicodeDecodeError, ValueError) as error:
        raise wrong(f"not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise wrong('not a plan: expected {"version": 1, "partitions": […]}')
    if document.get("version", _VERSION) != _VERSION:
        raise wrong(f"unknown version {document['version']!r}")
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for number, each in enumerate(document["partitions"], 1):
        try:
            partition, replicas = _entry(each)
        except ValueError as error:
            raise wrong(f"partition {number} of the list: {error}") from None
        if partition in plan:
            raise wrong(f"{partition} is named twice")
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
        raise ValueError(f"{partition!r} is not a partition")
    if (
        not isinstance(replicas, list)
        or not replicas
        or not all(type(broker) is int and broker >= 0 for broker in replicas)
    ):
        raise ValueError(f"replicas must be a list of broker ids, not {replicas!r}")
    if len(set(replicas)) < len(replicas):
        raise ValueError(f"its replicas {replicas} name a broker twice")
    folders = each.get("log_dirs")
    if folders is not None and folders != [_ANY] * len(replicas):
        raise ValueError('log_dirs must be "any" for each replica: moves between folders are not supported')
    return TopicPartition(topic, partition), tuple(replicas)


def write_plan(path: str, replicas: Mapping[TopicPartition, Iterable[int]]) -> None:
    """Raises OSError."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(brokers)}
        for tp, brokers in sorted(replicas.items())
    ]
    with open(path, "w", encoding="utf-8") as file:
        # One line per partition, so that plans can be compared and edited.
        lines = ",\n".join(f"  {json.dumps(each)}" for each in partitions)
        file.write(f'{{"version": {_VERSION}, "partitions": [\n{lines}\n]}}\n')
