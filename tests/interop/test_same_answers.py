"""Administration, most of it wrong in some way: Ottla answers with the same errors as Kafka 3.9.1.

Requests go to both, case by case. Messages aren't compared; other differences are named with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from harness.brokers import Broker, Kafka, Ottla
from harness.java import Unavailable
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    list_groups,
    list_transactions,
    metadata,
)

NODE: Final = 1
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)

NOT_COMPARED = {"throttle_time_ms", "error_message", "documentation", "cluster_id", "host", "port", "log_dir"}
NOT_COMPARED |= {"total_bytes", "usable_bytes", "topic_id", "configs", "partition_size", "controller_id"}

Case = tuple[str, Any, int]
"""A name, the request, its version."""

KNOWN = {
    "elect none by unknown type": "the type is refused, even if nothing is to be elected",
    "reassign twice": "one answer for a partition that is named twice",
    "reassign twice of a missing topic": "one answer for a partition that is named twice",
    "set unknown.key": "a broker config with an unknown name is refused",
    "set a logger": "configs of broker loggers aren't supported",
    "alter a topic of an impossible name": "UNKNOWN_TOPIC_OR_PARTITION, as from Kafka with ZooKeeper",
    "quota of 0": "a quota may be 0, as with ZooKeeper",
    "quota twice": "the last one counts, as with ZooKeeper",
    "quota of an address by name": "the broker looks up no host names",
    "delete twice": "each entry has an answer",
}


def _create(**options: Any) -> create_topics.CreateTopicsRequest:
    validate = options.pop("validate_only", True)
    configs = [
        create_topics.CreatableTopicConfig(name=key, value=text) for key, text in options.pop("configs", ())
    ]
    replicas: list[Any] = [
        create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in options.pop("assignments", ())
    ]
    count = -1 if replicas else 1
    topic = create_topics.CreatableTopic(
        **{"name": "new", "num_partitions": count, "replication_factor": count, **options},
        configs=configs,
        assignments=replicas,
    )
    return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=validate)


def topics() -> Iterator[Case]:
    placements: list[list[tuple[int, list[int]]]] = [
        [(0, [NODE])],
        [(1, [NODE])],
        [(0, [NODE, NODE])],
        [(0, [])],
        [(0, [7])],
        [(-1, [NODE])],
        [(0, [NODE]), (0, [NODE])],
        [(0, [NODE]), (2, [NODE])],
        [(0, [NODE]), (1, [NODE, 7])],
    ]
    topics_asked: list[dict[str, Any]] = [
        *({"num_partitions": number} for number in (0, -1, -2)),
        *({"replication_factor": number} for number in (0, -1, -2, 2, 32767)),
        *(
            {"name": name}
            for name in ("", ".", "..", "a b", "ä", "x" * 249, "x" * 250, "there", "__x", "a/b")
        ),
        *({"assignments": replicas} for replicas in placements),
        {"assignments": [(0, [NODE])], "replication_factor": 1},
        *(
            {"configs": configs}
            for configs in (
                *([("nope", "1")], [("retention.ms", "x")], [("retention.ms", None)], [("retention.ms", "")]),
                *(
                    [("", "1")],
                    [("segment.bytes", "13")],
                    [("min.insync.replicas", "0")],
                    [(" retention.ms", "5")],
                ),
                [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
                [("compression.type", "zstd"), ("compression.zstd.level", "99")],
                [("leader.replication.throttled.replicas", "x")],
            )
        ),
    ]
    for options in topics_asked:
        for version in (5, 7):
            yield f"create {options}", _create(**options), version
    for count, replicas in (
        *((0, None), (-1, None), (1, None), (2, None), (3, None), (3, []), (3, [[NODE]]), (3, [[NODE]] * 2)),
        *((3, [[7]]), (3, [[NODE, NODE]]), (3, [[]]), (5, [[NODE]] * 2)),
    ):
        for name in ("there", "missing"):
            given = (
                None
                if replicas is None
                else [create_partitions.CreatePartitionsAssignment(broker_ids=each) for each in replicas]
            )
            asked = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=given)
            request: Any = create_partitions.CreatePartitionsRequest(
                topics=[asked], timeout_ms=30_000, validate_only=True
            )
            yield f"{count} partitions of {name}, {replicas}", request, 3
    state = delete_topics.DeleteTopicState
    for name, states in (
        ("delete a missing topic", [state(name="missing")]),
        ("delete a missing id", [state(name=None, topic_id=b"\1" * 16)]),
        ("delete by name and id", [state(name="x", topic_id=b"\1" * 16)]),
        ("delete nothing", []),
        ("delete twice", [state(name="missing")] * 2),
        ("delete an impossible name", [state(name="a b")]),
    ):
        yield name, delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=30_000), 6


def configs() -> Iterator[Case]:
    for name, kind, resource, changes in (
        ("set", TOPIC, "there", [("retention.ms", SET, "5")]),
        ("set an unknown one", TOPIC, "there", [("nope", SET, "5")]),
        ("delete an unknown one", TOPIC, "there", [("nope", DELETE, None)]),
        ("set to null", TOPIC, "there", [("retention.ms", SET, None)]),
        ("set to a word", TOPIC, "there", [("retention.ms", SET, "x")]),
        ("append to a number", TOPIC, "there", [("retention.ms", APPEND, "5")]),
        ("append", TOPIC, "there", [("cleanup.policy", APPEND, "compact")]),
        ("append a wrong one", TOPIC, "there", [("cleanup.policy", APPEND, "x")]),
        ("subtract all", TOPIC, "there", [("cleanup.policy", SUBTRACT, "delete")]),
        ("change twice", TOPIC, "there", [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)]),
        (
            "contradict",
            TOPIC,
            "there",
            [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "3")],
        ),
        ("change nothing", TOPIC, "there", []),
        ("alter a missing topic", TOPIC, "missing", [("retention.ms", SET, "5")]),
        ("alter a topic of an impossible name", TOPIC, "a b", [("retention.ms", SET, "5")]),
        ("set for all brokers", BROKER, "", [("log.retention.ms", SET, "500000")]),
        ("set a fixed one", BROKER, "", [("num.partitions", SET, "3")]),
        ("set a password for all", BROKER, "", [("ssl.keystore.password", SET, "x")]),
        ("lock everyone out", BROKER, "", [("max.connections.per.ip", SET, "0")]),
        ("lock everyone out of one", BROKER, str(NODE), [("max.connections.per.ip", SET, "0")]),
        ("no connections", BROKER, str(NODE), [("max.connections", SET, "0")]),
        ("no retention", BROKER, str(NODE), [("log.retention.ms", SET, "0")]),
        ("wrong limits", BROKER, str(NODE), [("max.connections.per.ip.overrides", SET, "h:x")]),
        ("a wrong segment", BROKER, str(NODE), [("log.segment.bytes", SET, "1")]),
        ("a wrong codec", BROKER, str(NODE), [("compression.type", SET, "nope")]),
        ("no replicas in sync", BROKER, str(NODE), [("min.insync.replicas", SET, "0")]),
        ("a missing broker", BROKER, "77", [("log.retention.ms", SET, "5")]),
        ("a word for a broker", BROKER, "x", [("log.retention.ms", SET, "5")]),
        ("set unknown.key", BROKER, str(NODE), [("unknown.key", SET, "5")]),
        ("set a logger", LOGGER, str(NODE), [("kafka.server", SET, "INFO")]),
        ("an unknown kind", 3, "x", [("a", SET, "b")]),
    ):
        asked = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=resource,
            configs=[
                incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ],
        )
        request: Any = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[asked], validate_only=True
        )
        yield name, request, 1
    for kind, resource in (
        (TOPIC, "missing"),
        (TOPIC, ""),
        (TOPIC, "a b"),
        (BROKER, ""),
        (BROKER, "77"),
        (BROKER, "x"),
    ):
        described = describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=resource, configuration_keys=None
        )
        yield f"describe {kind} {resource}", describe_configs.DescribeConfigsRequest(resources=[described]), 4


def partitions() -> Iterator[Case]:
    for election in (0, 1, 2):
        for name, wanted in (
            ("none", []),
            ("one", [("there", [0])]),
            ("a missing one", [("there", [9])]),
            ("one of a missing topic", [("missing", [0])]),
        ):
            by = "unknown type" if election == 2 else f"type {election}"
            listed = [elect_leaders.TopicPartitions(topic=topic, partitions=parts) for topic, parts in wanted]
            request: Any = elect_leaders.ElectLeadersRequest(
                election_type=election, topic_partitions=listed, timeout_ms=30_000
            )
            yield f"elect {name} by {by}", request, 2
    for name, moves in (
        ("nothing new", [(0, [NODE])]),
        ("a cancel", [(0, None)]),
        ("no replicas", [(0, [])]),
        ("an unknown broker", [(0, [7])]),
        ("a broker twice", [(0, [NODE, NODE])]),
        ("a missing partition", [(9, [NODE])]),
        ("twice", [(0, [NODE]), (0, [NODE])]),
    ):
        for topic in ("there", "missing"):
            asked = alter_partition_reassignments.ReassignableTopic(
                name=topic,
                partitions=[
                    alter_partition_reassignments.ReassignablePartition(
                        partition_index=index, replicas=replicas
                    )
                    for index, replicas in moves
                ],
            )
            request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
                timeout_ms=30_000, topics=[asked]
            )
            yield f"reassign {name}" + (" of a missing topic" if topic == "missing" else ""), request, 0
    for topic, indexes in (("there", [0]), ("there", [9]), ("missing", [0]), ("there", [])):
        described: Any = describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=topic, partition_indexes=indexes)]
        )
        yield f"producers of {topic} {indexes}", described, 0
        folders = describe_log_dirs.DescribableLogDirTopic(topic=topic, partitions=indexes)
        yield f"log dirs of {topic} {indexes}", describe_log_dirs.DescribeLogDirsRequest(topics=[folders]), 4
    for names in (["there"], ["missing", "there"], [""], ["a b"], ["x" * 250]):
        named = [metadata.MetadataRequestTopic(name=each) for each in names]
        both = len(names) > 1
        for version in (4, 7, 9, 12):
            request = metadata.MetadataRequest(topics=named, allow_auto_topic_creation=False)
            what = "one topic that is there and one that isn't" if both else str(names)
            yield f"metadata of {what}", request, version
    for kind in (1, 2, 3):
        yield f"endpoints {kind}", describe_cluster.DescribeClusterRequest(endpoint_type=kind), 1


def users() -> Iterator[Case]:
    for name, entity, changes in (
        ("a quota", [("user", "u")], [("producer_byte_rate", 100.0, False)]),
        ("quota of 0", [("user", "u")], [("producer_byte_rate", 0.0, False)]),
        ("quota below 0", [("user", "u")], [("producer_byte_rate", -1.0, False)]),
        ("quota in parts of a byte", [("user", "u")], [("producer_byte_rate", 1.5, False)]),
        ("an unknown quota", [("user", "u")], [("nope", 1.0, False)]),
        ("an unknown quota's end", [("user", "u")], [("nope", 1.0, True)]),
        ("another's quota", [("user", "u")], [("connection_creation_rate", 5.0, False)]),
        (
            "quota twice",
            [("user", "u")],
            [("producer_byte_rate", 1.0, False), ("producer_byte_rate", 2.0, False)],
        ),
        ("quota of no one", [], [("producer_byte_rate", 1.0, False)]),
        ("quota of an unknown kind", [("x", "y")], [("producer_byte_rate", 1.0, False)]),
        ("quota without a name", [("user", "")], [("producer_byte_rate", 1.0, False)]),
        ("quota of an address", [("ip", "1.2.3.4")], [("connection_creation_rate", 5.0, False)]),
        ("quota of no address", [("ip", "not an address")], [("connection_creation_rate", 5.0, False)]),
        ("quota of an address by name", [("ip", "localhost")], [("connection_creation_rate", 5.0, False)]),
        ("quota of both", [("ip", "1.2.3.4"), ("user", "u")], [("producer_byte_rate", 1.0, False)]),
    ):
        entry = alter_client_quotas.EntryData(
            entity=[
                alter_client_quotas.EntityData(entity_type=kind, entity_name=own) for kind, own in entity
            ],
            ops=[
                alter_client_quotas.OpData(key=key, value=value, remove=remove)
                for key, value, remove in changes
            ],
        )
        request: Any = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True)
        yield name, request, 1
    for components in (
        [("user", 1, None)],
        [("user", 0, "missing")],
        [("x", 0, "y")],
        [("user", 0, "u"), ("user", 1, None)],
    ):
        wanted = [
            describe_client_quotas.ComponentData(entity_type=kind, match_type=match, match=text)
            for kind, match, text in components
        ]
        request = describe_client_quotas.DescribeClientQuotasRequest(components=wanted, strict=True)
        yield f"quotas of {components}", request, 1
    for iterations, mechanism, user in (
        *((4095, 1, "u"), (16385, 1, "u"), (0, 1, "u"), (4096, 3, "u"), (4096, 0, "u"), (4096, 1, "")),
    ):
        upsertion = alter_user_scram_credentials.ScramCredentialUpsertion(
            name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"0" * 32
        )
        request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[upsertion])
        yield f"{iterations} iterations by {mechanism} of {user!r}", request, 0
    for user, mechanism in (("missing", 1), ("missing", 3), ("", 1)):
        deletion = alter_user_scram_credentials.ScramCredentialDeletion(name=user, mechanism=mechanism)
        request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=[deletion])
        yield f"no credentials by {mechanism} of {user!r}", request, 0
    for names in (["missing"], ["u", "u"], [""]):
        described = [describe_user_scram_credentials.UserName(name=each) for each in names]
        request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=described)
        yield f"credentials of {names}", request, 0
    for states in ([], ["stable"], ["nope"], ["Empty", "x"]):
        for types in ([], ["Classic"], ["nope"]):
            yield (
                f"groups {states} {types}",
                list_groups.ListGroupsRequest(states_filter=states, types_filter=types),
                5,
            )
        request = list_transactions.ListTransactionsRequest(state_filters=states)
        yield f"transactions {states}", request, 1
    for group in ("missing", ""):
        yield f"group {group!r}", describe_groups.DescribeGroupsRequest(groups=[group]), 5


def plain(value: Any) -> Any:
    """A message's fields that are compared; lists of structures in an order of their own."""
    if isinstance(value, list | tuple):
        return sorted(map(plain, value), key=str)
    if type(value).__module__.startswith("ottla_protocol.messages"):
        names = [
            name for name in type(value).__slots__ if name not in NOT_COMPARED and not name.startswith("_")
        ]
        return {name: plain(getattr(value, name)) for name in names}
    return value


def _make_topic(wire: Wire) -> None:
    created = wire.call(_create(name="there", num_partitions=2, validate_only=False), 7)
    assert created.topics[0].error_code == 0
    asked = describe_producers.TopicRequest(name="there", partition_indexes=[0, 1])
    request = describe_producers.DescribeProducersRequest(topics=[asked])
    wait_for(
        lambda: all(part.error_code == 0 for part in wire.call(request, 0).topics[0].partitions), "leaders"
    )


@pytest.fixture(scope="module")
def wires(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Wire]]:
    folder = tmp_path_factory.mktemp("answers")
    try:
        brokers: list[Broker] = [Kafka(folder / "kafka"), Ottla(folder / "ottla", {"broker.id": str(NODE)})]
    except Unavailable as lack:
        pytest.skip(str(lack))
    try:
        for broker in brokers:
            broker.start()
        made = [Wire(broker.port) for broker in brokers]
        for wire in made:
            _make_topic(wire)
        yield made
        for wire in made:
            wire.close()
    finally:
        for broker in brokers:
            broker.remove()


@pytest.mark.parametrize("cases", [topics, configs, partitions, users])
def test_ottla_answers_as_kafka_does(cases: Callable[[], Iterator[Case]], wires: list[Wire]) -> None:
    different = {}
    for name, request, version in cases():
        kafka, ottla = (plain(wire.call(request, version)) for wire in wires)
        if kafka != ottla:
            different[name] = (kafka, ottla)
    print(sorted(different))
    assert {name: what for name, what in different.items() if name not in KNOWN} == {}
