"""The options for writing, with the names and meanings of Spark's Kafka connector and of Kafka's producer.

Additional ones are ``transactional``, ``skipReplayed``, ``onTooLarge``, ``deadLetterTopic``, ``lookBackRecords``, and
Delta Lake's ``txnAppId`` and ``txnVersion``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from ottla_pipeline.source import kafka, names
from ottla_pipeline.source.errors import OptionError
from ottla_pipeline.source.units import one_of, truth, whole

log = logging.getLogger("ottla_pipeline")

SkipReplayed: TypeAlias = Literal["task", "batch", "never"]
OnTooLarge: TypeAlias = Literal["fail", "skip", "deadletter"]

_OWN: Final = (
    "topic",
    "includeHeaders",
    "transactional",
    "skipReplayed",
    "lookBackRecords",
    "onTooLarge",
    "deadLetterTopic",
    "txnAppId",
    "txnVersion",
)
_SPARKS: Final = ("checkpointLocation", "queryName")
"""Spark's own options, which it also passes to sinks."""

_WRITER: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")

_NUMBERS: Final = {
    "linger.ms": 0,
    "batch.size": 0,
    "max.request.size": 1,
    "buffer.memory": 1,
    "max.block.ms": 0,
    "delivery.timeout.ms": 1,
    "max.in.flight.requests.per.connection": 1,
    "transaction.timeout.ms": 1,
}
"""The producer's settings that are whole numbers, with their minimum."""
_LEVELS: Final = ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")
_PRODUCER: Final = (
    *_NUMBERS,
    *_LEVELS,
    "acks",
    "bootstrap.servers",
    "compression.type",
    "enable.idempotence",
    "transactional.id",
    *kafka.CONNECTING,
)
_WITHOUT_EFFECT: Final = kafka.JAVA_ALONE | {
    "enable.metrics.push",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "retries",
}
"""Settings of Java's producer without effect here."""
_REFUSED: Final[Mapping[str, str]] = {
    "interceptor.classes": "interceptors are Java classes, and may change what is written",
    "key.serializer": "keys are written as they are; cast them to string or binary in the DataFrame",
    "partitioner.class": "partitioners are Java classes; a column partition says where a row goes",
    "partitioner.ignore.keys": "rows without a key, or with a partition of their own, go where their key doesn't say",
    "value.serializer": "values are written as they are; cast them to string or binary in the DataFrame",
}
_NAMES: Final = names.OptionNames(
    (*_OWN, *_SPARKS), _PRODUCER, _WITHOUT_EFFECT, _REFUSED, " for writing", "docs/spark-writing.md"
)


@dataclass(frozen=True)
class WriteOptions:
    """All options of a writer, checked. ``client`` has Kafka's settings without ``kafka.``, except the brokers."""

    bootstrap_servers: str
    client: Mapping[str, str]
    topic: str | None = None
    skip_replayed: SkipReplayed = "task"
    look_back: int = 10_000_000
    """Most offsets of a partition that are searched for records of an earlier try."""
    on_too_large: OnTooLarge = "fail"
    dead_letter_topic: str | None = None
    transaction: tuple[str, int] | None = None
    """The program's name for a batch write: a writer, and a number that rises with each write."""
    transactional: bool = False
    """Whether each batch is written in one transaction."""
    transactional_id: str | None = None
    """None: the writer's name."""

    def producer(self) -> dict[str, Any]:
        """Keyword arguments for ``ottla_client``'s Producer. Raises OptionError."""
        made = kafka.client_options(self.client)
        for name, least in _NUMBERS.items():
            if name in self.client:
                made[name.replace(".", "_")] = whole(f"kafka.{name}", self.client[name], least)
        if "acks" in self.client:
            acks = one_of("kafka.acks", self.client["acks"], ("all", "-1", "0", "1"))
            made["acks"] = "all" if acks == "-1" else acks
        if "enable.idempotence" in self.client:
            made["enable_idempotence"] = truth("kafka.enable.idempotence", self.client["enable.idempotence"])
        codec = one_of(
            "kafka.compression.type",
            self.client.get("compression.type", "none"),
            ("none", "gzip", "snappy", "lz4", "zstd"),
        )
        if codec != "none":
            made["compression_type"] = codec
            level = f"compression.{codec}.level"
            if level in self.client:
                made["compression_level"] = whole(f"kafka.{level}", self.client[level], -(2**31))
        if "delivery_timeout_ms" not in made:
            needed = made.get("linger_ms", 5) + made.get("request_timeout_ms", 30_000)
            made["delivery_timeout_ms"] = max(120_000, needed)
        return made


def resolve(options: Mapping[str, str]) -> WriteOptions:
    """The options of a writer. Raises OptionError: one line that names the option and what is right."""
    given = {name.lower(): value for name, value in options.items()}
    for idle in _NAMES.check(options):
        log.warning("the option %s has no effect here: it is for Java's producer alone", idle)
    servers, client = kafka.servers_and_client(given, _WITHOUT_EFFECT)
    if "includeheaders" in given:
        # As in Spark's connector, the column overrides it, so only its syntax is checked.
        truth("includeHeaders", given["includeheaders"])
    dead = given.get("deadlettertopic", "").strip() or None
    what = one_of("onTooLarge", given.get("ontoolarge", "fail"), ("fail", "skip", "deadletter"))
    if (what == "deadletter") != (dead is not None):
        raise OptionError(
            "onTooLarge is deadletter: set deadLetterTopic"
            if dead is None
            else f"deadLetterTopic is set, and nothing goes there: onTooLarge is {what}, and it has to be deadletter"
        )
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("the option topic is empty; name a topic, or leave it out and have a column topic")
    skip = cast(
        "SkipReplayed",
        one_of("skipReplayed", given.get("skipreplayed", "task"), ("task", "batch", "never")),
    )
    made = WriteOptions(
        servers,
        client,
        None if topic is None else topic.strip(),
        skip,
        whole("lookBackRecords", given.get("lookbackrecords", "10000000"), 1),
        cast("OnTooLarge", what),
        dead,
        _transaction(given, skip),
        *_transactional(given, client),
    )
    made.producer()
    return made


_FOR_TRANSACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "acks": ("all", "-1"),
    "enable.idempotence": ("true",),
    "max.in.flight.requests.per.connection": ("1", "2", "3", "4", "5"),
}
"""The settings that transactions need, with the values that are right."""


def _transactional(given: Mapping[str, str], client: dict[str, str]) -> tuple[bool, str | None]:
    """Whether to write in transactions, and the transactional id if one is set; ``client`` loses it."""
    name = client.pop("transactional.id", None)
    if not truth("transactional", given.get("transactional", "false")):
        if name is not None:
            raise OptionError(
                "kafka.transactional.id is set, and transactional is not: set transactional=true, or leave it out"
            )
        if client.pop("transaction.timeout.ms", None) is not None:
            log.warning("the option kafka.transaction.timeout.ms has no effect without transactional=true")
        return False, None
    if name is not None and not name.strip():
        raise OptionError("kafka.transactional.id is empty; leave it out, and the writer's name is used")
    for setting, right in _FOR_TRANSACTIONS.items():
        value = client.get(setting, right[0]).strip().lower()
        if value not in right:
            raise OptionError(
                f"kafka.{setting} is {value}, and transactional=true needs {right[0] if len(right) < 3 else '1 to 5'}"
            )
    return True, name


def _transaction(given: Mapping[str, str], skip: SkipReplayed) -> tuple[str, int] | None:
    name, number = given.get("txnappid"), given.get("txnversion")
    if name is None and number is None:
        return None
    if name is None or number is None:
        one, other = ("txnAppId", "txnVersion") if number is None else ("txnVersion", "txnAppId")
        raise OptionError(f"{one} is set, and {other} is not: a write is known by both")
    if _WRITER.fullmatch(name) is None:
        raise OptionError(
            f"txnAppId is {name!r}; letters, digits, dots, dashes and underscores are allowed, up to 200"
        )
    if skip == "never":
        raise OptionError("txnAppId is set, and skipReplayed=never recognises nothing: leave one of them out")
    return name, whole("txnVersion", number, 0)
