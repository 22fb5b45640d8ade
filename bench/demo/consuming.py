"""The members of the group, each in its own process; they commit the flights that they handed on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any

# A flight as consumed: partition, offset, row of the CSV, carrier, arrival delay.
Flight = tuple[int, int, int, str, int | None]

MOST = 2000
"""Records of one poll."""


@dataclass(frozen=True, slots=True)
class News:
    """A member's report: its assigned partitions, the flights it read, or that it left."""

    member: int
    flights: list[Flight]
    assigned: int | None = None
    commits_failed: int = 0
    left: bool = False


def consume(
    client: str, member: int, address: str, topic: str, group: str, leave: Event, reports: Queue[News]
) -> None:
    """Read, hand on and commit flights until ``leave`` is set.

    Flights are handed on before their offsets are committed, so a kill in between has them delivered again:
    none can be missed.
    """
    # Keep the client's log of the broken connection off the screen.
    logging.disable(logging.CRITICAL)
    if client == "kafka-python":
        _consume_with_kafka_python(member, address, topic, group, leave, reports)
    elif client == "aiokafka":
        asyncio.run(_consume_with_aiokafka(member, address, topic, group, leave, reports))
    else:
        asyncio.run(_consume_with_ottla(member, address, topic, group, leave, reports))
    reports.put(News(member, [], left=True))


def _flights(lists: Iterable[list[Any]]) -> list[Flight]:
    found: list[Flight] = []
    for records in lists:
        for record in records:
            flight = json.loads(record.value)
            found.append(
                (record.partition, record.offset, flight["row"], flight["carrier"], flight["arr_delay"])
            )
    return found


def _settings(member: int, address: str, group: str) -> dict[str, Any]:
    """The settings that all clients have under the same names."""
    return {
        "bootstrap_servers": address,
        "group_id": group,
        "client_id": f"member-{member}",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 1000,
        "session_timeout_ms": 30_000,
    }


def _consume_with_kafka_python(
    member: int, address: str, topic: str, group: str, leave: Event, reports: Queue[News]
) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            """Do nothing: every flight read is committed already."""

        def on_partitions_assigned(self, assigned: list[object]) -> None:
            reports.put(News(member, [], assigned=len(assigned)))

    consumer = KafkaConsumer(
        **_settings(member, address, group),
        max_poll_records=MOST,
        reconnect_backoff_max_ms=500,
        request_timeout_ms=10_000,
        metadata_max_age_ms=5000,
    )
    consumer.subscribe([topic], listener=Listener())
    while not leave.is_set():
        batch = _flights(consumer.poll(timeout_ms=200).values())
        if batch:
            reports.put(News(member, batch))
            try:
                consumer.commit()
            except KafkaError:
                # The broker is down, or the group is rebalancing. The next batch commits these flights, or the
                # partition's next owner reads them again.
                reports.put(News(member, [], commits_failed=1))
    consumer.close()


async def _consume_with_aiokafka(
    member: int, address: str, topic: str, group: str, leave: Event, reports: Queue[News]
) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: object) -> None:
            """Do nothing: every flight read is committed already."""

        async def on_partitions_assigned(self, assigned: Collection[object]) -> None:
            reports.put(News(member, [], assigned=len(assigned)))

    consumer = AIOKafkaConsumer(
        **_settings(member, address, group),
        request_timeout_ms=10_000,
        metadata_max_age_ms=5000,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    try:
        while not leave.is_set():
            polled = await consumer.getmany(timeout_ms=200, max_records=MOST)
            batch = _flights(polled.values())
            if batch:
                reports.put(News(member, batch))
                try:
                    await consumer.commit()
                except KafkaError:
                    reports.put(News(member, [], commits_failed=1))
    finally:
        await consumer.stop()


async def _consume_with_ottla(
    member: int, address: str, topic: str, group: str, leave: Event, reports: Queue[News]
) -> None:
    from ottla_client import ClientError, Consumer, RebalanceListener, TopicPartition

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            # All that it has now, also those that it had before.
            reports.put(News(member, [], assigned=len(consumer.assignment())))

    consumer = Consumer(**_settings(member, address, group), max_poll_records=MOST)
    consumer.subscribe([topic], listener=Listener())
    async with consumer:
        while not leave.is_set():
            batch = _flights([await consumer.poll(timeout_ms=200)])
            if batch:
                reports.put(News(member, batch))
                try:
                    await consumer.commit()
                except ClientError:
                    reports.put(News(member, [], commits_failed=1))
