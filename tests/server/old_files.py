"""Fills a broker, and describes everything it holds, with confluent-kafka: the same for any version of the broker.

``python -m tests.server.old_files PROGRAM FOLDER`` runs PROGRAM, the ``ottla`` of an older version, and leaves
``stopped.tar.xz`` and ``killed.tar.xz`` in FOLDER; each has a data folder and ``expected.json``, its description.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from harness.ports import free_port

TOPICS = {
    "orders": (3, {"retention.ms": "-1"}),
    "state": (1, {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}),
    "cut": (1, {"segment.bytes": "1000"}),
    "deleted": (2, {}),
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "log.index.size.max.bytes": "4096",
    "log.initial.task.delay.ms": "300",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "2",
}
_SECONDS = 30.0
Headers = list[tuple[str, str | bytes | None]]


def fill(bootstrap: str) -> None:
    """Create topics of several kinds, write to them, delete one, commit offsets, and set a broker config."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, count, 1, config=configs) for name, (count, configs) in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(_SECONDS)
    for number, codec in enumerate(CODECS):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True}
        )
        for n in range(30):
            key = f"{codec}-{n}"
            headers: Headers | None = [("codec", codec.encode()), ("empty", None)] if n % 2 else None
            producer.produce(
                "orders", f"{key} " * 5, key, n % 3, timestamp=1_700_000_000_000 + n, headers=headers
            )
            producer.produce("state", None if n % 7 == 3 else f"{key} at {number}", f"{n}", 0)
            producer.produce("cut", key, None, 0)
            producer.produce("deleted", key, key)
        assert producer.flush(_SECONDS) == 0
    for future in admin.delete_records([TopicPartition("cut", 0, 70)]).values():
        future.result(_SECONDS)
    for future in admin.delete_topics(["deleted"]).values():
        future.result(_SECONDS)
    _commit(admin)
    entry = ConfigEntry("message.max.bytes", "500000", incremental_operation=AlterConfigOpType.SET)
    changed = [ConfigResource(ResourceType.BROKER, str(_broker(admin)), incremental_configs=[entry])]
    for future in admin.incremental_alter_configs(changed).values():
        future.result(_SECONDS)


def _commit(admin: AdminClient) -> None:
    """Commit offsets; a coordinator that has just been created may refuse them at first."""
    offsets = [
        TopicPartition("orders", 0, 17, metadata="seventeen"),
        TopicPartition("orders", 2, 50),
        TopicPartition("state", 0, 3),
    ]
    deadline = time.monotonic() + _SECONDS
    while True:
        wanted = [ConsumerGroupTopicPartitions("packers", offsets)]
        (future,) = admin.alter_consumer_group_offsets(wanted, request_timeout=5).values()
        try:
            if not any(each.error for each in future.result(_SECONDS).topic_partitions):
                return
        except KafkaException:
            pass
        assert time.monotonic() < deadline, "no coordinator takes the offsets"
        time.sleep(0.1)


def describe(bootstrap: str) -> dict[str, Any]:
    """Describe topics, their ids and configs, every record, committed offsets, and the cluster's own settings."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    metadata = admin.list_topics(timeout=_SECONDS)
    names = sorted(name for name in metadata.topics if not name.startswith("__"))
    ids = {
        name: str(future.result(_SECONDS).topic_id)
        for name, future in admin.describe_topics(TopicCollection(names)).items()
    }
    # Partitions one after the other, so that the records of each have a fixed order.
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "describe",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer({**settings, "check.crcs": True, "enable.partition.eof": True})
    topics = {}
    for name in names:
        partitions = sorted(metadata.topics[name].partitions)
        configs = _configs(admin, ResourceType.TOPIC, name, source=1)
        records = {str(each): _records(consumer, name, each) for each in partitions}
        topics[name] = {"id": ids[name], "configs": configs, "records": records}
    consumer.close()
    groups = {}
    for group in ("packers",):
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        found = future.result(_SECONDS).topic_partitions
        groups[group] = sorted(
            [each.topic, each.partition, each.offset, each.metadata or ""] for each in found
        )
    return {
        "cluster": metadata.cluster_id,
        "brokers": sorted(metadata.brokers),
        "broker configs": _configs(admin, ResourceType.BROKER, str(_broker(admin)), source=2),
        "topics": topics,
        "groups": groups,
    }


def _broker(admin: AdminClient) -> int:
    return min(admin.list_topics(timeout=_SECONDS).brokers)


def _configs(admin: AdminClient, kind: Any, name: str, source: int) -> dict[str, str]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return {key: entry.value for key, entry in future.result(_SECONDS).items() if entry.source == source}


def _records(consumer: Consumer, topic: str, partition: int) -> dict[str, Any]:
    """Describe a partition: its offsets, and a digest of all records with their offsets and timestamps."""
    first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), _SECONDS)
    consumer.assign([TopicPartition(topic, partition, first)])
    digest, count = hashlib.sha256(), 0
    while first < end and (message := consumer.poll(_SECONDS)) is not None and message.error() is None:
        facts = (message.offset(), message.timestamp(), message.key(), message.value(), message.headers())
        digest.update(repr(facts).encode())
        count += 1
    return {"first": first, "end": end, "count": count, "sha256": digest.hexdigest()}


def _capture(program: str, sign: signal.Signals, archive: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder, port = Path(temporary), free_port()
        command = [program, "broker", "--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{port}"]
        for key, value in SETTINGS.items():
            command += ["--set", f"{key}={value}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            broker.stdout.readline()
            try:
                fill(f"127.0.0.1:{port}")
                while (found := describe(f"127.0.0.1:{port}"))["topics"]["state"]["records"]["0"][
                    "count"
                ] > 60:
                    pass  # until it is compacted
                while b"cut" not in (folder / "data/log-start-offset-checkpoint").read_bytes():
                    time.sleep(0.1)
                (folder / "expected.json").write_text(json.dumps(found, indent=1))
            finally:
                broker.send_signal(sign)
        (folder / "data/.lock").unlink()
        with tarfile.open(archive, "w:xz") as tar:
            for name in ("data", "expected.json"):
                tar.add(folder / name, name)


if __name__ == "__main__":
    _capture(sys.argv[1], signal.SIGTERM, Path(sys.argv[2]) / "stopped.tar.xz")
    _capture(sys.argv[1], signal.SIGKILL, Path(sys.argv[2]) / "killed.tar.xz")
