"""Share groups at this broker's partitions: a collector, and ``/shares``, which ``ottla cluster doctor`` asks.

Kafka's protocol says where a share group is and how much it hasn't done, not how often its records were delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.coordinator.share.states import TERMINAL, Acknowledge, RecordState
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.tasks import unhurried
from ottla_protocol.aio.http_server import Page, json_page
from ottla_protocol.prometheus import labels

if TYPE_CHECKING:
    from ottla_broker.coordinator.share.share_partition import SharePartition
    from ottla_broker.coordinator.share.share_partitions import SharePartitions
    from ottla_broker.metrics.sources import Sources

_A_STEP: Final = 25
_MOST_RUNS: Final = 200
"""Runs of a share partition that a page looks at, the oldest first: a bound on a turn of the event loop."""
_MOST_LISTED: Final = 1_000
_HOUR_MS: Final = 3_600_000
_TYPES: Final = (Acknowledge.ACCEPT, Acknowledge.RELEASE, Acknowledge.REJECT, Acknowledge.RENEW)


class ShareCollector:
    """See :data:`.sources.Collector`. Owned by the loop thread."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self, out: Exposition) -> Iterator[None]:
        """Records in flight by group, and what became of the others."""
        partitions = self._sources.shares()
        if partitions is None:
            return
        prefix = "kafka_server_sharegroupmetrics_"
        acknowledged = out.counter(
            f"{prefix}recordacknowledgements_total", "Records acknowledged, by group and type."
        )
        timeouts = out.counter(
            "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
            "Records that members held for longer than share.record.lock.duration.ms.",
        )
        dropped = out.counter(
            "ottla_share_group_dropped_records_total",
            "Records that no consumer accepted: rejected, or delivered too often.",
        )
        in_flight = out.gauge(
            "ottla_share_group_records_in_flight",
            "Records that members have, or that are delivered again, by group.",
        )
        for done, (group, tally) in enumerate(list(partitions.tallies.items()), 1):
            if out.room(len(_TYPES) + 3):
                for each in _TYPES:
                    acknowledged.add(tally.types[each], labels(group=group, ackType=each.name.lower()))
                timeouts.add(tally.timeouts, labels(group=group))
                dropped.add(tally.rejected, labels(group=group, reason="rejected"))
                dropped.add(tally.given_up, labels(group=group, reason="deliveries"))
            if done % _A_STEP == 0:
                yield
        counts: Counter[str] = Counter()
        for done, share in enumerate(list(partitions.loaded), 1):
            counts[share.key.group_id] += share.in_flight.size - share.in_flight.completed()
            if done % _A_STEP == 0:
                yield
        for group, count in counts.items():
            if out.room(1):
                in_flight.add(count, labels(group=group))
        yield


async def shares_page(sources: Sources) -> Page:
    """The share groups whose records are delivered for the last time, or were dropped in the last hour."""
    partitions = sources.shares()
    document: dict[str, Any] = {
        "cluster_id": sources.metadata.cluster_id,
        "broker_id": sources.config.broker_id,
        "last_deliveries": [],
        "dropped": [],
    }
    if partitions is not None:
        last = document["last_deliveries"]
        async for share in unhurried(list(partitions.loaded), 1):
            found = _last_deliveries(share, partitions.settings_of(share.key.group_id).most_deliveries)
            if found is not None and len(last) < _MOST_LISTED:
                last.append(found)
        document["dropped"] = list(islice(_dropped(partitions, sources.clock.now_ms()), _MOST_LISTED))
    return json_page(200, document)


def _last_deliveries(share: SharePartition, most: int) -> dict[str, Any] | None:
    """The records that are dropped unless this delivery or the next one is accepted."""
    found = [
        run
        for run in islice(share.in_flight, _MOST_RUNS)
        if run.state not in TERMINAL and run.count + (run.state is RecordState.AVAILABLE) >= most > 1
    ]
    if not found:
        return None
    return {
        "group": share.key.group_id,
        "topic": share.partition.topic,
        "partition": share.key.partition,
        "records": sum(run.last - run.first + 1 for run in found),
        "first_offset": found[0].first,
        "most_deliveries": most,
    }


def _dropped(partitions: SharePartitions, now_ms: int) -> Iterator[dict[str, Any]]:
    """By group and reason, with the last offset. Of many losses in an hour, those that are remembered."""
    for group, tally in list(partitions.tallies.items()):
        for rejected in (True, False):
            recent = [
                each for each in tally.losses if each.rejected is rejected and now_ms - each.at_ms <= _HOUR_MS
            ]
            if recent:
                last = recent[-1]
                yield {
                    "group": group,
                    "topic": last.topic,
                    "partition": last.partition,
                    "reason": "rejected" if rejected else "deliveries",
                    "records": sum(each.last - each.first + 1 for each in recent),
                    "last_offset": last.last,
                }
