"""Quotas by Kafka's own ``kafka-configs.sh``, and a client of Kafka's that obeys them."""

from __future__ import annotations

from tests.interop.support import Java


def test_kafkas_tool(java: Java) -> None:
    """The commands of docs/quotas.md."""

    def alter(*arguments: str) -> None:
        java.tool("configs", "--alter", *arguments)

    def describe(*arguments: str) -> str:
        return java.tool("configs", "--describe", *arguments)

    user = ("--entity-type", "users", "--entity-name", "alice")
    clients = ("--entity-type", "clients", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.7")
    try:
        alter(*user, *clients, "--add-config", "producer_byte_rate=1048576,consumer_byte_rate=2097152")
        alter(*address, "--add-config", "connection_creation_rate=20")
        reported = describe("--entity-type", "users", "--entity-type", "clients")
        assert "user-principal 'alice'" in reported
        assert "the default client-id" in reported
        assert "producer_byte_rate=1048576.0" in reported
        assert "consumer_byte_rate=2097152.0" in reported
    finally:
        alter(*user, *clients, "--delete-config", "producer_byte_rate,consumer_byte_rate")
        alter(*address, "--delete-config", "connection_creation_rate")
