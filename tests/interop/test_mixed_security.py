"""A cluster of Apache Kafka 3.9.1 and Ottla: brokers and clients log in by SCRAM over TLS, and ACLs decide."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from harness import maven
from harness.java import Unavailable
from harness.ports import free_port
from kazoo.client import KazooClient
from tests.console.browsing import browsing
from tests.interop.mixed import MixedCluster
from tests.support import acl_matrix
from tests.support.certificates import Certificates
from tests.support.traffic import create
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker.config import BrokerConfig
from ottla_broker.config.password_encoder import PasswordEncoder
from ottla_client import Producer
from ottla_client.admin import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)
from ottla_client.connection import Connection
from ottla_client.errors import AuthenticationError
from ottla_client.sync import Admin
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.sasl.login import SaslLogin
from ottla_protocol.sasl.scram import credential, encode_credential, salt_password
from ottla_protocol.schema import Message

KAFKA, OTTLA = 1, 2
TOPIC = "orders"
SCRAM = "SCRAM-SHA-512"
_SECRET = "the secret of the test"


class SecuredCluster(MixedCluster):
    """Each broker has an open listener, whose users may do all, and a secured one, also for the other broker."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess, certificates: Certificates) -> None:
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        settings = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            "inter.broker.listener.name": "SECURE",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificates.server,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": certificates.authority,
            "listener.name.secure.sasl.enabled.mechanisms": SCRAM,
            "sasl.mechanism.inter.broker.protocol": SCRAM,
            "listener.name.secure.scram-sha-512.sasl.jaas.config": (
                f'{login} username="broker" password="broker-secret";'
            ),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:ANONYMOUS",
            "delegation.token.secret.key": "a secret of both",
            "password.encoder.secret": _SECRET,
            "offsets.topic.replication.factor": 2,
        }
        super().__init__(folder, zookeeper, ("kafka", "ottla"), settings)
        self.tls = ssl.create_default_context(cafile=certificates.authority)
        self.secured = {number: free_port() for number in self.brokers}
        for number, broker in self.brokers.items():
            both = f"PLAINTEXT://{broker.bootstrap},SECURE://127.0.0.1:{self.secured[number]}"
            broker.settings = {**broker.settings, "listeners": both}

    async def ask(self, number: int, login: SaslLogin, request: Message) -> Any:
        """Log in at a broker, and ask it. Raises AuthenticationError."""
        connection = await Connection.open(
            "127.0.0.1",
            self.secured[number],
            client_id="test",
            timeout=60,
            ssl_context=self.tls,
            login=login,
        )
        try:
            return await connection.submit(request, timeout=60)
        finally:
            connection.close()
            await connection.wait_closed()

    async def serves(self, number: int, login: SaslLogin) -> bool:
        """Whether a broker shows the topic to a user."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        code = (await self.ask(number, login, request)).topics[0].error_code
        assert code in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return bool(code == ErrorCode.NONE)


def by_password(user: str, password: str, token: bool = False) -> SaslLogin:
    return SaslLogin(SCRAM, user, password, lambda: os.urandom(12).hex(), tokenauth=token)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    try:
        maven.kafka_jars()
    except Unavailable as lack:
        pytest.skip(str(lack))
    folder = tmp_path_factory.mktemp("mixed")
    zookeeper = ZooKeeperProcess(folder / "zookeeper").start()
    made = SecuredCluster(folder, zookeeper, Certificates(tmp_path_factory.mktemp("certificates")))
    try:
        # The brokers' own user has to be there before them.
        salted = salt_password(SCRAM, "broker-secret", b"salt", 4096)
        text = encode_credential(credential(SCRAM, salted, b"salt", 4096))
        node = json.dumps({"version": 1, "config": {SCRAM: text}}).encode()
        address, slash, chroot = made.connect.partition("/")
        client = KazooClient(address)
        client.start(60)
        client.create(f"{slash}{chroot}/config/users/broker", node, makepath=True)
        client.stop()
        client.close()
        made.start()
        yield made
        assert not made.complaints()
    finally:
        made.kill()
        zookeeper.kill()


async def until(check: Callable[[], Awaitable[bool]], what: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 60
    while not await check():
        assert loop.time() < deadline, f"still waiting for {what}"
        await asyncio.sleep(0.05)


async def test_logins_rules_and_tokens_hold_at_both(cluster: SecuredCluster) -> None:
    create(cluster, TOPIC, partitions=2, replicas=2)
    for partition in (0, 1):
        cluster.wait_isr(TOPIC, {KAFKA, OTTLA}, partition)
    with Admin(cluster.bootstrap) as admin:
        admin.set_password("alice", "alice-secret")
    alice = by_password("alice", "alice-secret")

    async def known(number: int, login: SaslLogin) -> bool:
        try:
            await cluster.serves(number, login)
        except AuthenticationError:
            return False
        return True

    for number in cluster.brokers:
        await until(partial(known, number, alice), "the password")
        with pytest.raises(AuthenticationError):
            await cluster.serves(number, by_password("alice", "wrong"))
        assert not await cluster.serves(number, alice)

    rule = AclBinding(
        ResourcePattern(AclResource.TOPIC, "ord", PatternType.PREFIXED),
        AclEntry("User:alice", "*", AclOperation.WRITE, AclPermission.ALLOW),
    )

    async def allowed(number: int, wanted: bool) -> bool:
        return await cluster.serves(number, alice) == wanted

    for asked in (KAFKA, OTTLA):
        with Wire(cluster.brokers[asked].port) as wire:
            for wanted, change in ((True, acl_matrix.create), (False, acl_matrix.delete)):
                change(wire, [rule])
                for number in cluster.brokers:
                    await until(partial(allowed, number, wanted), f"{number} to obey {asked}: {wanted}")
    with Wire(cluster.brokers[OTTLA].port) as wire:
        acl_matrix.create(wire, [rule])
    for number in cluster.brokers:
        await until(partial(allowed, number, True), "the rule")
    # One partition is led by each.
    options: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "ssl_context": cluster.tls,
        "sasl_mechanism": SCRAM,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
    bootstrap = [f"127.0.0.1:{port}" for port in cluster.secured.values()]
    async with Producer(bootstrap, acks="all", **options) as producer:
        for partition in (0, 1):
            await producer.send_and_wait(TOPIC, b"value", partition=partition)
    # The console, of users and lists that Kafka has.
    secured = {name: options[name] for name in ("security_protocol", "ssl_context", "sasl_mechanism")}
    async with browsing(f"127.0.0.1:{cluster.secured[KAFKA]}", secured) as browser:
        assert "Log in" in (await browser.get("/")).text
        entered = await browser.post("/login", user="broker", password="broker-secret")
        assert entered.status == 200
        for operation, answer in (("write", "Allowed"), ("read", "Denied")):
            page = await browser.get(f"/access?who=alice&operation={operation}&resource=topic:{TOPIC}")
            assert answer in page.text
        assert TOPIC in (await browser.get("/topics")).text
    for maker, user in ((KAFKA, OTTLA), (OTTLA, KAFKA)):
        made = await cluster.ask(maker, alice, CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert made.error_code == ErrorCode.NONE
        token = by_password(made.token_id, b64encode(made.hmac).decode(), token=True)
        await until(partial(known, user, token), f"{user} to know the token that {maker} has made")
        assert await cluster.serves(user, token)
        with pytest.raises(AuthenticationError):
            await cluster.serves(user, by_password(made.token_id, "wrong", token=True))


def test_passwords_set_at_runtime_are_stored_alike(cluster: SecuredCluster) -> None:
    """Ottla reads what Kafka has encrypted. A listener that doesn't exist yet is one whose login Kafka lets change."""
    name = "listener.name.later.plain.sasl.jaas.config"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="bøbs secret";'
    change = AlterConfigsResource(
        resource_type=4, resource_name=str(KAFKA), configs=[AlterableConfig(name=name, value=login)]
    )
    with Wire(cluster.brokers[KAFKA].port) as wire:
        answer = wire.call(IncrementalAlterConfigsRequest(resources=[change]), 1).responses[0]
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    node = cluster.node(f"/config/brokers/{KAFKA}")
    assert node is not None
    config = BrokerConfig.from_properties({"password.encoder.secret": _SECRET})
    assert PasswordEncoder(config, Random()).decode(node["config"][name]) == login


def test_kafka_hears_nothing_of_settings_that_it_does_not_know(cluster: SecuredCluster) -> None:
    """Kafka keeps those of groups and client metrics with KRaft alone; of others it hears as from its own brokers."""
    create(cluster, "quiet", replicas=2)
    changes = [
        (32, "g", "consumer.session.timeout.ms"),
        (16, "s", "interval.ms"),
        (2, "quiet", "retention.ms"),
    ]
    with Wire(cluster.brokers[OTTLA].port) as wire:
        for kind, name, key in changes:
            change = AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, value="54321")]
            )
            answer = wire.call(IncrementalAlterConfigsRequest(resources=[change]), 1).responses[0]
            assert answer.error_code == ErrorCode.NONE, answer.error_message
    kafka: Any = cluster.brokers[KAFKA]
    heard = re.compile(r"topics/quiet with config: \w*Map\(retention.ms -> 54321\)")
    wait_for(lambda: heard.search(kafka.log()), "the topic's change")
    assert "error processing change notification" not in kafka.log()
