"""``kill -9`` while topics are created, grown and deleted: acknowledged changes hold, and none is half done."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable

from tests.badinput.requests import fetch, produce, produce_answer, records
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

_numbers = itertools.count()


class Admin:
    """Creates, grows and deletes topics until the broker dies; remembers the answers."""

    def __init__(self, port: int, seed: int) -> None:
        self.partitions: dict[str, set[int]] = {}
        """The numbers of partitions each topic may have: several where an answer is missing, 0 for no topic."""
        self._port = port
        self._chance = random.Random(seed)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with Wire(self._port) as wire:
                while True:
                    self._step(wire)
        except OSError:
            return  # the broker was killed: the outcome of this request is unknown

    def _step(self, wire: Wire) -> None:
        certain = [name for name, counts in self.partitions.items() if len(counts) == 1 and counts != {0}]
        what = self._chance.random()
        if what < 0.5 or not certain:
            name, count = f"topic-{next(_numbers)}", self._chance.randrange(1, 4)
            self.partitions[name] = {0, count}
            config = CreatableTopicConfig(name="retention.ms", value="7777777")
            topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=[config])
            assert (
                wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5).topics[0].error_code == 0
            )
            self.partitions[name] = {count}
        elif what < 0.7:
            name = self._chance.choice(certain)
            (count,) = self.partitions[name]
            self.partitions[name] = {count, count + 1}
            grown = CreatePartitionsTopic(name=name, count=count + 1, assignments=None)
            answer = wire.call(CreatePartitionsRequest(topics=[grown], timeout_ms=5000), 3)
            assert answer.results[0].error_code == 0
            self.partitions[name] = {count + 1}
        else:
            name = self._chance.choice(certain)
            self.partitions[name] |= {0}
            assert (
                wire.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=5000), 5).responses[0].error_code
                == 0
            )
            self.partitions[name] = {0}


def test_topics_exist_or_not_but_never_half(
    own_broker: Callable[..., BrokerProcess], rounds: int, chance: random.Random
) -> None:
    broker = own_broker(settings={"auto.create.topics.enable": False})
    known: dict[str, set[int]] = {}
    for _ in range(rounds * 2):
        admins = [Admin(broker.port, chance.randrange(10**9)) for _ in range(2)]
        time.sleep(chance.uniform(0.05, 0.5))
        broker.kill()
        for admin in admins:
            admin.join()
            known.update(admin.partitions)
        broker.start()
        with Wire(broker.port) as wire:
            names = [MetadataRequestTopic(name=name) for name in known]
            for topic in wire.call(MetadataRequest(topics=names, allow_auto_topic_creation=False), 8).topics:
                count = len(topic.partitions)
                assert count in known[topic.name], (
                    f"{topic.name} has {count} of {known[topic.name]} partitions"
                )
                known[topic.name] = {count}
                assert topic.error_code == (0 if count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if count:
                    usable(wire, topic.name, count)
    gone = {name for name, counts in known.items() if counts == {0}}
    assert gone

    def folders() -> set[str]:
        found = {path.name.rpartition("-")[0] for path in broker.folder.iterdir() if path.is_dir()}
        return {name for name in found if name in gone or name.partition(".")[0] in gone}

    wait_for(lambda: not folders(), "the folders of deleted topics to go")
    with Wire(broker.port) as wire:
        for name in sorted(gone)[:10]:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            assert (
                wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5).topics[0].error_code == 0
            )
            assert produce(wire, name, records(b"new")) == (0, 0)


def usable(wire: Wire, topic: str, partitions: int) -> None:
    """Every partition can be written and read, and the topic has the config it was created with."""
    for partition in range(partitions):
        answer = produce_answer(wire, topic, records(b"value"), partition=partition)
        assert answer.error_code == 0, f"{topic}-{partition}: {answer.error_message}"
        offset = answer.base_offset
        assert b"value" in fetch(wire, topic, offset, partition=partition)[1]
    asked = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=["retention.ms"])
    (result,) = wire.call(DescribeConfigsRequest(resources=[asked]), 4).results
    assert [config.value for config in result.configs] == ["7777777"]
