"""The options that begin with ``kafka.``, and the client's arguments that they become.

Names are those of Kafka's Java clients, so that a job keeps its options of Spark's connector. An option that the client
doesn't support is logged, or refused if ignoring it would change what is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from ottla_client.lowlevel import in_kafka_names, kafka_name
from ottla_pipeline.reading.errors import ReadError
from ottla_pipeline.reading.options import CONNECTION_NAMES, cluster_options

from .errors import OptionError
from .units import whole

CONNECTING: Final = (*sorted(CONNECTION_NAMES), "default.api.timeout.ms")
"""Settings of every client of the pipeline."""
READING: Final = (
    "bootstrap.servers",
    "group.id",
    "isolation.level",
    "client.rack",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
)
"""Further settings of a reader."""

JAVA_ALONE: Final = frozenset(
    [
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "security.providers",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.keystore.password",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.password",
    ]
)
"""Settings of every Java client without effect here."""

WITHOUT_EFFECT: Final = JAVA_ALONE | {
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "check.crcs",
    "exclude.internal.topics",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
}
"""Settings of Java's consumer without effect here: readers join no group and don't poll."""
REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "startingOffsets says where to start, and failOnDataLoss what to do when that is gone",
    "enable.auto.commit": "commitOffsets=true commits what is done, when it is done",
    "interceptor.classes": "interceptors are Java classes, and may change what is read",
    "key.deserializer": "keys are bytes; cast or parse them in the DataFrame",
    "value.deserializer": "values are bytes; cast or parse them in the DataFrame",
}
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SASL: Final = (
    "of SASL the client has kafka.sasl.mechanism (PLAIN, SCRAM and OAUTHBEARER) and kafka.sasl.jaas.config"
)


def bare_name(option: str) -> str:
    """An option in Kafka's spelling without ``kafka.``; ``kafka.request_timeout_ms`` is understood as well."""
    return kafka_name(option.removeprefix("kafka."))


def servers_and_client(given: Mapping[str, str], idle: Set[str]) -> tuple[str, dict[str, str]]:
    """The brokers, and the other options without ``kafka.``, except those that are idle. Raises OptionError."""
    client = {
        bare: value
        for name, value in given.items()
        if name.startswith("kafka.") and (bare := bare_name(name)) not in idle
    }
    if not (servers := client.pop("bootstrap.servers", "").strip()):
        raise OptionError(
            "the option kafka.bootstrap.servers is missing; it is host:port of one broker or several"
        )
    return servers, client


def refusal(name: str, refused: Mapping[str, str]) -> str | None:
    """The reason why an option (without ``kafka.``) is refused; None if it isn't."""
    if name.startswith("sasl.") and name not in CONNECTION_NAMES:
        return _SASL
    return refused.get(name)


def request_timeout(client: Mapping[str, str]) -> float:
    """``kafka.request.timeout.ms`` in seconds; 30 as in Kafka."""
    return whole("kafka.request.timeout.ms", client.get("request.timeout.ms", "30000"), 1) / 1000


def call_timeout(client: Mapping[str, str]) -> float:
    """Seconds for a call, retries included: ``kafka.default.api.timeout.ms``, or ``kafka.request.timeout.ms``."""
    if "default.api.timeout.ms" not in client:
        return request_timeout(client)
    return whole("kafka.default.api.timeout.ms", client["default.api.timeout.ms"], 1) / 1000


def client_options(client: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments for ``ottla_client``'s classes, without the bootstrap servers; tasks connect with the same.

    ``client`` has the options without ``kafka.``. Raises OptionError.
    """
    for name in CONNECTION_NAMES:
        if name in client and name.endswith(".ms"):
            whole(f"kafka.{name}", client[name], 1)
    protocol = client.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise OptionError(f"kafka.security.protocol is {protocol!r}; it can be {', '.join(_PROTOCOLS)}")
    for name in CONNECTION_NAMES:
        if name in client and name.startswith("ssl.") and protocol not in ("SSL", "SASL_SSL"):
            raise OptionError(f"kafka.{name} is set, and kafka.security.protocol is not SSL or SASL_SSL")
    try:
        return cluster_options({**client, "security.protocol": protocol})
    except ReadError as error:
        raise OptionError(in_kafka_names(str(error))) from None
