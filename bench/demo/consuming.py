"""A member of the group: kafka-python in a process of its own, which commits what it has handed on."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

from bench.demo import flights

# A flight as consumed: partition, offset, row of the CSV, carrier, arrival delay.
Flight = tuple[int, int, int, str, int | None]


@dataclass(frozen=True, slots=True)
class News:
    """What a member has to tell: the partitions it was given, the flights it read, or that it has left."""

    member: int
    flights: list[Flight]
    assigned: int | None = None
    commits_failed: int = 0
    left: bool = False


def consume(member: int, address: str, leave: Event, reports: Queue[News]) -> None:
    """Read, hand on, commit, until told to leave the group.

    Flights are handed on before their offsets are committed, so a kill in between has them delivered again:
    none can be missed.
    """
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    logging.getLogger("kafka").setLevel(logging.CRITICAL)

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            """What was read is committed already."""

        def on_partitions_assigned(self, assigned: list[object]) -> None:
            reports.put(News(member, [], assigned=len(assigned)))

    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=flights.GROUP,
        client_id=f"member-{member}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=2000,
        heartbeat_interval_ms=1000,
        session_timeout_ms=30_000,
        reconnect_backoff_max_ms=500,
        request_timeout_ms=10_000,
        metadata_max_age_ms=5000,
    )
    consumer.subscribe([flights.TOPIC], listener=Listener())
    while not leave.is_set():
        polled = consumer.poll(timeout_ms=200)
        batch: list[Flight] = []
        for records in polled.values():
            for record in records:
                flight = json.loads(record.value)
                batch.append(
                    (record.partition, record.offset, flight["row"], flight["carrier"], flight["arr_delay"])
                )
        if batch:
            reports.put(News(member, batch))
            try:
                consumer.commit()
            except KafkaError:
                # The broker is away, or the group is rebalancing: these are committed with the next batch, or
                # delivered again to whoever has the partition then.
                reports.put(News(member, [], commits_failed=1))
    consumer.close()
    reports.put(News(member, [], left=True))
