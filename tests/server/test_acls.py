"""Access control in a running broker: each API under each kind of rule, and rules over a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.ports import free_port
from tests.badinput.requests import produce_request, records
from tests.support import acl_matrix
from tests.support.acl_matrix import ADMIN, CLIENT, SETTINGS, VARIANTS, binding, forbidden
from tests.support.acl_rows import ROWS, TOPIC, Row
from tests.support.handlers import api_of
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire, request_bytes

from ottla_broker.handlers import served_apis
from ottla_protocol.acls import AclOperation, AclResource, PatternType
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.describe_acls import DescribeAclsRequest
from ottla_protocol.messages.describe_cluster import DescribeClusterRequest
from ottla_protocol.messages.describe_groups import DescribeGroupsRequest
from ottla_protocol.messages.list_groups import ListGroupsRequest
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.produce import ProduceResponse


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Everyone is anonymous, so the first rule is made while resources without rules are open."""
    folder = tmp_path_factory.mktemp("acls") / "data"
    running = BrokerProcess(folder, {**SETTINGS, "allow.everyone.if.no.acl.found": "true"}).start()
    with Wire(running.port) as wire:
        acl_matrix.prepare(wire)
    running.stop()
    running.settings = {**SETTINGS, **acl_matrix.user_settings(running.bootstrap, free_port())}
    running.start()
    with Wire(running.port) as wire:
        acl_matrix.prepare_topic(wire)
    yield running
    assert running.stop() == 0


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port, source=ADMIN) as wire:
        yield wire


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port, source=CLIENT) as wire:
        yield wire


@pytest.fixture(scope="module")
def users(broker: BrokerProcess) -> Iterator[dict[str, Wire]]:
    with acl_matrix.logged_in(int(str(broker.settings["listeners"]).rpartition(":")[2])) as connections:
        yield connections


def _api(row: Row) -> str:
    return ApiKey(row.request.API_KEY).name.lower()


@pytest.mark.parametrize("row", ROWS, ids=_api)
def test_each_user_may_do_what_the_rules_say(admin: Wire, users: dict[str, Wire], row: Row) -> None:
    acl_matrix.check_users(row, admin, users)


@pytest.mark.parametrize("row", [row for row in ROWS if not row.users], ids=_api)
def test_each_api_obeys_its_rules(admin: Wire, client: Wire, row: Row) -> None:
    assert forbidden(client.call(row.request, row.version)) == {row.refused}
    for variant in VARIANTS:
        rules = acl_matrix.bindings(row, variant)
        acl_matrix.create(admin, rules)
        found = forbidden(client.call(row.request, row.version))
        acl_matrix.delete(admin, rules)
        assert bool(found) != variant[1], variant[0]
    if row.partial is not None:
        rules = [binding(row.rules[0])]
        acl_matrix.create(admin, rules)
        assert forbidden(client.call(row.request, row.version)) == {row.partial}
        acl_matrix.delete(admin, rules)


def test_every_api_that_needs_something_has_a_row() -> None:
    """The rest answer with lists, which have tests below."""
    needing = {key for key in served_apis(in_cluster=False, client_telemetry=True) if api_of(key).needs}
    lists = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
    lists.add(ApiKey.DESCRIBE_DELEGATION_TOKEN)  # tests/security
    assert needing == {row.request.API_KEY for row in ROWS} | lists


def test_metadata_hides_topics_and_shows_what_is_allowed(admin: Wire, client: Wire) -> None:
    everything = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    assert client.call(everything, 9).topics == []
    rules = [binding("Read Topic:orders"), binding("AlterConfigs Topic:orders")]
    acl_matrix.create(admin, rules)
    (topic,) = client.call(everything, 9).topics
    assert topic.name == TOPIC
    allowed = {
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
    }
    assert topic.topic_authorized_operations == sum(1 << operation for operation in allowed)
    acl_matrix.delete(admin, rules)
    (hidden,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12).topics
    assert (hidden.error_code, hidden.topic_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, bytes(16))
    acl_matrix.create(admin, [binding("Describe Topic:orders", host=ADMIN)])
    (known,) = admin.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12).topics
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=known.topic_id, name=None)])
    (hidden,) = client.call(by_id, 12).topics
    assert (hidden.error_code, hidden.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


def test_the_clusters_operations_need_describe(admin: Wire, client: Wire) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert client.call(request, 0).cluster_authorized_operations == 0
    rules = [binding("Alter Cluster:kafka-cluster")]
    acl_matrix.create(admin, rules)
    bits = client.call(request, 0).cluster_authorized_operations
    assert bits == 1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE
    acl_matrix.delete(admin, rules)


def test_groups_are_listed_by_what_may_be_described(admin: Wire, client: Wire) -> None:
    committed = next(row for row in ROWS if row.request.API_KEY == ApiKey.OFFSET_COMMIT)
    rules = [binding(rule, host=ADMIN) for rule in committed.rules]
    acl_matrix.create(admin, rules)
    admin.call(committed.request, committed.version)
    acl_matrix.delete(admin, rules)
    assert client.call(ListGroupsRequest(), 4).groups == []
    for rule in ("Describe Group:billing", "Describe Cluster:kafka-cluster"):
        acl_matrix.create(admin, [binding(rule)])
        assert [group.group_id for group in client.call(ListGroupsRequest(), 4).groups] == ["billing"]
        acl_matrix.delete(admin, [binding(rule)])
    acl_matrix.create(admin, [binding("Delete Group:billing")])
    asked = DescribeGroupsRequest(groups=["billing"], include_authorized_operations=True)
    (group,) = client.call(asked, 5).groups
    assert group.authorized_operations == 1 << AclOperation.DELETE | 1 << AclOperation.DESCRIBE
    acl_matrix.delete(admin, [binding("Delete Group:billing")])


def test_a_new_topic_shows_its_configs_to_whom_may_see_them(admin: Wire, client: Wire) -> None:
    rules = [binding("Create Topic:new")]
    acl_matrix.create(admin, rules)
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)], validate_only=True
    )
    (result,) = client.call(request, 7).topics
    assert (result.error_code, result.num_partitions) == (0, -1)
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not result.configs
    more = [binding("DescribeConfigs Topic:new")]
    acl_matrix.create(admin, more)
    (result,) = client.call(request, 7).topics
    assert (result.topic_config_error_code, result.num_partitions) == (0, 1)
    assert result.configs
    acl_matrix.delete(admin, [*rules, *more])


def test_deleting_by_id_does_not_give_the_name_away(admin: Wire, client: Wire) -> None:
    acl_matrix.create(admin, [binding("Describe Topic:orders", host=ADMIN)])
    (topic,) = admin.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12).topics
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic.topic_id)])
    (answer,) = client.call(request, 6).responses
    assert (answer.error_code, answer.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    acl_matrix.create(admin, [binding("Describe Topic:orders")])
    (answer,) = client.call(request, 6).responses
    assert (answer.error_code, answer.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC)
    acl_matrix.delete(admin, [binding("Describe Topic:orders")])
    unknown = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=b"u" * 16)])
    (answer,) = client.call(unknown, 6).responses
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_rules_that_make_no_sense_are_refused(admin: Wire) -> None:
    good = binding("Read Topic:orders")
    for bad in (
        good._replace(pattern=good.pattern._replace(name="a/b")),
        good._replace(pattern=good.pattern._replace(resource=AclResource.CLUSTER)),
        good._replace(pattern=good.pattern._replace(resource=AclResource.ANY)),
        good._replace(pattern=good.pattern._replace(pattern=PatternType.MATCH)),
        good._replace(entry=good.entry._replace(principal="alice")),
        good._replace(entry=good.entry._replace(operation=AclOperation.ANY)),
    ):
        with pytest.raises(AssertionError):
            acl_matrix.create(admin, [bad])


def test_the_code_of_unknown_closes_the_connection(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire, pytest.raises(ConnectionError):
        wire.call(DescribeAclsRequest(resource_type_filter=0), 3)
    with Wire(broker.port) as wire:
        acl_matrix.delete(wire, [])


@pytest.mark.parametrize("code", [99, -1])
def test_codes_without_a_meaning_find_nothing(admin: Wire, code: int) -> None:
    known = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    for unknown in known:
        filters = {**known, unknown: code, "resource_name_filter": None, "principal_filter": None}
        filters["host_filter"] = None
        described = admin.call(DescribeAclsRequest(**filters), 3)
        assert (described.error_code, described.resources) == (0, [])
        deleted = admin.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**filters)]), 3)
        assert [(each.error_code, each.matching_acls) for each in deleted.filter_results] == [(0, [])]
    creation = AclCreation(
        resource_type=code, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    created = admin.call(CreateAclsRequest(creations=[creation]), 3)
    assert [each.error_code for each in created.results] == [ErrorCode.INVALID_REQUEST]


def written(wire: Wire, client_id: str) -> int:
    """The error of a record for the coordinators' own topic."""
    request = produce_request("__consumer_offsets", bytes(records(b"v")), acks=1)
    wire.send(request_bytes(request, 9, client_id=client_id))
    data = wire.receive()
    answer = ProduceResponse.decode(data, 9, parse_response_header(data, 0, 9)[1])
    return answer.responses[0].partition_responses[0].error_code


def test_a_client_id_alone_gives_no_right_to_write_internal_topics(admin: Wire, client: Wire) -> None:
    """In Kafka it does. Here only brokers may, whatever the rules."""
    topic = "Write Topic:__consumer_offsets"
    rules = [binding(topic), binding(topic, host=ADMIN)]
    acl_matrix.create(admin, rules)
    for wire in (client, admin):
        for name in ("client", "__admin_client"):
            assert written(wire, name) == ErrorCode.INVALID_TOPIC_EXCEPTION
    acl_matrix.delete(admin, rules)


def test_denials_are_in_the_log(broker: BrokerProcess, client: Wire) -> None:
    client.call(MetadataRequest(topics=[MetadataRequestTopic(name="secret-plans")]), 12)
    client.call(MetadataRequest(topics=[MetadataRequestTopic(name="secret-plans")]), 12)
    lines = [line for line in broker.log().splitlines() if "secret-plans" in line]
    assert len(lines) == 1, "repeats are counted"
    for word in ("access denied", "User:ANONYMOUS", "Describe", "Topic:secret-plans", CLIENT):
        assert word in lines[0]


def test_rules_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    settings = {**SETTINGS, "super.users": "User:admin;User:ANONYMOUS"}
    broker = BrokerProcess(tmp_path / "data", settings).start()
    try:
        rules = [binding("Read Topic:orders"), binding("Write Topic:*")]
        with Wire(broker.port) as wire:
            acl_matrix.create(wire, rules)
        broker.kill()
        broker.start()
        with Wire(broker.port) as wire:
            answer = wire.call(
                DescribeAclsRequest(
                    resource_type_filter=1,
                    resource_name_filter=None,
                    pattern_type_filter=1,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                ),
                3,
            )
        found = {(r.resource_name, acl.operation) for r in answer.resources for acl in r.acls}
        assert found == {("orders", AclOperation.READ), ("*", AclOperation.WRITE)}
    finally:
        broker.stop()
