"""Limits of connections, changed while the broker runs."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.support.processes import BrokerProcess
from tests.support.wire import Wire

from ottla_client.admin import AlterConfig, AlterOperation, ConfigResource
from ottla_client.sync import Admin
from ottla_protocol.messages.metadata import MetadataRequest

_NAME = "listener.name.plaintext.max.connections"


def test_a_full_listener_accepts_again_when_its_limit_rises(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    own = ConfigResource.broker(1001)

    def another() -> int:
        with Wire(broker.port) as wire:
            return len(wire.call(MetadataRequest(topics=[]), 8).brokers)

    with Admin(broker.bootstrap) as admin, ThreadPoolExecutor(1) as threads:
        admin.alter_configs({own: [AlterConfig(_NAME, "1")]})
        assert admin.describe_configs([own], keys=[_NAME])[own][_NAME].value == "1"
        waiting = threads.submit(another)
        # Admin's own connections are open already.
        admin.alter_configs({own: [AlterConfig(_NAME, None, AlterOperation.DELETE)]})
        assert waiting.result(60) == 1


def test_a_limit_that_was_changed_at_runtime_holds_after_a_restart(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker()
    with Admin(broker.bootstrap) as admin:
        admin.alter_configs({ConfigResource.broker(1001): [AlterConfig("max.connections.per.ip", "3")]})
    broker.stop()
    broker.start()
    with ExitStack() as stack:
        # The last is closed once the first three are there.
        *_, over = [
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 60)) for _ in range(4)
        ]
        assert over.recv(1) == b""
