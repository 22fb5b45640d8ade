"""Kafka's console consumers of several versions, one for each way in which they coordinate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness import maven
from tests.interop.support import MAINS, TOOLS, Java
from tests.support.cluster import Cluster

_SCALA: Final = {"0.8.2.2": "2.11", "0.10.2.2": "2.12"}
_OLD_MAIN: Final = "kafka.tools.ConsoleConsumer"
_SHARE_MAIN: Final = f"{TOOLS}.consumer.ConsoleShareConsumer"
_OF_ZOOKEEPER: Final = {
    "auto.commit.interval.ms": "500",
    "rebalance.backoff.ms": "500",
    "rebalance.max.retries": "100",
    "zookeeper.connection.timeout.ms": "60000",
}


def java_commands(
    cluster: Cluster, folder: Path, topic: str, prefix: str, session_ms: int
) -> Iterator[tuple[str, str, list[str]]]:
    """The generation, the version and the command of each; its group is the prefix and the generation.

    Each prints a record's value, and counts it as processed at the next poll. Raises Unavailable.
    """
    log4j = folder / "log4j.properties"
    log4j.write_text("log4j.rootLogger=OFF\n")

    def java(version: str) -> Java:
        if version in _SCALA:
            libs = maven.jars(f"kafka-{version}", [f"org.apache.kafka:kafka_{_SCALA[version]}:{version}"])
        else:
            libs = maven.kafka_jars(version)
        return Java(cluster.bootstrap, version, libs, log4j)

    def settings(generation: str, version: str, config: dict[str, str]) -> str:
        path = folder / f"{generation}-{version}.properties"
        lines = {"group.id": prefix + generation, **config}
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return str(path)

    for version in _SCALA:
        config = {"zookeeper.connect": cluster.connect, "zookeeper.session.timeout.ms": str(session_ms)}
        file = settings("zookeeper", version, {**_OF_ZOOKEEPER, **config})
        where = ("--zookeeper", cluster.connect, "--topic", topic, "--consumer.config", file)
        yield "zookeeper", version, java(version).command(_OLD_MAIN, *where)
    reading = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": "500"}
    classic = {**reading, "session.timeout.ms": str(session_ms), "heartbeat.interval.ms": "1000"}
    consumer = {**reading, "group.protocol": "consumer"}
    for generation, version, config in (
        ("classic", "0.10.2.2", classic),
        ("classic", maven.KAFKA_VERSION, classic),
        ("classic", maven.KAFKA_4_VERSION, classic),
        ("consumer", maven.KAFKA_4_VERSION, consumer),
        ("share", maven.KAFKA_4_VERSION, {}),
    ):
        tools = java(version)
        main = _OLD_MAIN if version in _SCALA else MAINS[version]["console-consumer"]
        option = "--command-config" if version == maven.KAFKA_4_VERSION else "--consumer.config"
        file = settings(generation, version, config)
        where = ("--bootstrap-server", cluster.bootstrap, "--topic", topic, option, file)
        if generation == "share":
            yield generation, version, tools.command(_SHARE_MAIN, *where, "--group", prefix + generation)
        else:
            yield generation, version, tools.command(main, *where)
