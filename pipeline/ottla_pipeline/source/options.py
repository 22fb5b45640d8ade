"""Options from Spark, checked and converted before any broker is asked."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from ottla_client import TopicPartition
from ottla_pipeline.reading.ranges import COLUMNS, HEADERS, Isolation, OnCorrupt, ReadSettings, Segments

from . import kafka, names, positions
from .errors import OptionError
from .positions import Kind, Position
from .units import one_of, seconds, size, truth, whole

log = logging.getLogger("ottla_pipeline")

_STRATEGIES: Final = ("assign", "subscribe", "subscribepattern")
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitOffsets",
)
_BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")


@dataclass(frozen=True)
class Topics:
    """The topics to read: exactly one of the three is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern}"
        if self.assigned:
            return ", ".join(map(str, self.assigned))
        return ", ".join(self.names)


@dataclass(frozen=True)
class Limits:
    """Limits of a micro-batch; None: no limit. ``max_delay`` is in seconds."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay: float = 900.0


@dataclass(frozen=True)
class Splits:
    """Limits by which ranges are split into tasks; None: no limit."""

    min_partitions: int | None = None
    max_records: int | None = None
    max_bytes: int | None = 256 * 1024 * 1024
    bytes_by_default: bool = True
    """The user didn't set ``max_bytes``: if brokers don't report sizes, ranges are not split by it."""


@dataclass(frozen=True)
class SourceOptions:
    """All options of a reader, checked. ``client`` has Kafka's settings without ``kafka.``, except the brokers."""

    bootstrap_servers: str
    topics: Topics
    starting: Position
    ending: Position = field(default_factory=lambda: positions.ending({}))
    client: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    commit_offsets: bool = False
    commit_required: bool = False
    isolation: Isolation = "read_uncommitted"
    include_headers: bool = False
    fail_on_data_loss: bool = True
    limits: Limits = field(default_factory=Limits)
    splits: Splits = field(default_factory=Splits)
    segments: Segments = "auto"
    on_corrupt: OnCorrupt = "fail"
    dead_letter_topic: str | None = None
    offset_retries: int = 3
    offset_retry_seconds: float = 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        return (*COLUMNS, HEADERS) if self.include_headers else COLUMNS

    def read_settings(self, columns: tuple[str, ...] | None = None) -> ReadSettings:
        """Settings of the tasks, for these columns or all."""
        return ReadSettings(
            self.bootstrap_servers,
            self.client,
            columns=self.columns if columns is None else columns,
            isolation=self.isolation,
            segments=self.segments,
            on_corrupt=self.on_corrupt,
            fail_on_data_loss=self.fail_on_data_loss,
            **_fetch_size(self.client),
        )


def resolve(options: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """The options of a batch or stream reader. Raises OptionError: one line with the option and what is right."""
    given = {name.lower(): value for name, value in options.items()}
    _warn_of_idle(options)
    if "groupidprefix" in given:
        log.warning("the option groupIdPrefix has no effect here: no consumer group is joined to read")
    _suit(given, stream)
    made = _made(given, stream)
    if not stream:
        _agree(made)
    return made


def client_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Kafka's settings without ``kafka.``, checked, without those that have no effect. Raises OptionError."""
    _warn_of_idle(f"kafka.{name}" for name in client)
    found = {
        name.lower(): value for name, value in client.items() if name.lower() not in kafka.WITHOUT_EFFECT
    }
    for name in ("bootstrap.servers", "group.id", "isolation.level"):
        found.pop(name, None)
    kafka.client_options(found)
    _fetch_size(found)
    return found


def _warn_of_idle(options: Iterable[str]) -> None:
    for idle in names.check(options):
        log.warning(
            "the option %s has no effect here: no consumer group is joined, and batches are read whole", idle
        )


def _fetch_size(client: Mapping[str, str]) -> dict[str, int]:
    given = [
        whole(f"kafka.{name}", client[name], 1)
        for name in ("fetch.max.bytes", "max.partition.fetch.bytes")
        if name in client
    ]
    return {"fetch_bytes": min(given)} if given else {}


def check(options: Mapping[str, str]) -> None:
    """Check what holds for batches and streams alike. Raises OptionError."""
    names.check(options)
    need_dead_letter_topic(_made({name.lower(): value for name, value in options.items()}, True))


def _made(given: Mapping[str, str], stream: bool) -> SourceOptions:
    """Convert options, by lower-case names, checking each by itself."""
    servers, client = kafka.servers_and_client(given, kafka.WITHOUT_EFFECT)
    group = client.pop("group.id", "").strip() or None
    isolation = one_of(
        "kafka.isolation.level",
        client.pop("isolation.level", "read_uncommitted"),
        ("read_uncommitted", "read_committed"),
    )
    if (wait := given.get("kafkaconsumer.polltimeoutms")) is not None:
        client["default.api.timeout.ms"] = str(whole("kafkaConsumer.pollTimeoutMs", wait, 1))
    kafka.client_options(client)
    commit = _commits(given, group)
    made = SourceOptions(
        servers,
        _topics(given),
        positions.starting(given, "latest" if stream else "earliest"),
        positions.ending(given),
        client,
        group,
        commit_offsets=commit,
        commit_required=commit and "commitoffsets" in given,
        isolation=cast("Isolation", isolation),
        include_headers=truth("includeHeaders", given.get("includeheaders", "false")),
        fail_on_data_loss=truth("failOnDataLoss", given.get("failondataloss", "true")),
        limits=_limits(given),
        splits=_splits(given),
        segments=cast(
            "Segments", one_of("segments", given.get("segments", "auto"), ("auto", "always", "never"))
        ),
        on_corrupt=cast(
            "OnCorrupt", one_of("onCorrupt", given.get("oncorrupt", "fail"), ("fail", "deadletter"))
        ),
        dead_letter_topic=given.get("deadlettertopic", "").strip() or None,
        offset_retries=whole("fetchOffset.numRetries", given.get("fetchoffset.numretries", "3"), 0),
        offset_retry_seconds=whole(
            "fetchOffset.retryIntervalMs", given.get("fetchoffset.retryintervalms", "1000"), 0
        )
        / 1000,
    )
    _fetch_size(client)
    if made.starting.kind is Kind.GROUP and group is None:
        raise OptionError("startingOffsets is group: set kafka.group.id")
    return made


def need_dead_letter_topic(options: SourceOptions) -> None:
    """Check the options of readers that need a topic for dead letters. Raises OptionError."""
    if options.on_corrupt == "deadletter" and options.dead_letter_topic is None:
        raise OptionError(
            "onCorrupt is deadletter: set deadLetterTopic to the topic that takes what can't be decoded"
        )
    if options.on_corrupt != "deadletter" and options.dead_letter_topic is not None:
        raise OptionError(
            "deadLetterTopic is set, and nothing would go there: set onCorrupt=deadletter as well"
        )


def _suit(given: Mapping[str, str], stream: bool) -> None:
    """Refuse endings of a stream, and warn of limits of a batch."""
    if stream:
        for name in _BATCH_ONLY:
            if name.lower() in given:
                raise OptionError(f"{name} is for batches; a stream has no end")
    else:
        for name in _STREAM_ONLY:
            if name.lower() in given:
                log.warning(
                    "the option %s has no effect here: it is for streams, and this is a batch query", name
                )


def _topics(given: Mapping[str, str]) -> Topics:
    found = [name for name in _STRATEGIES if name in given]
    if len(found) != 1:
        which = "none of them is" if not found else f"{' and '.join(found)} are"
        raise OptionError(f"one of subscribe, subscribePattern and assign says what to read; {which} set")
    text = given[found[0]].strip()
    if found[0] == "assign":
        return Topics(assigned=positions.partitions("assign", text))
    if found[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OptionError(f"subscribe is {text!r}, which names no topic")
        return Topics(topics)
    if not text:
        raise OptionError("subscribePattern is empty; it is a regular expression for names of topics")
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern is {text!r}, which is no regular expression: {error}") from None
    return Topics(pattern=text)


def _limits(given: Mapping[str, str]) -> Limits:
    most, least = (
        whole(name, given[name.lower()], 1) if name.lower() in given else None
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger")
    )
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})")
    limit = given.get("maxbytespertrigger")
    return Limits(
        most,
        None if limit is None else size("maxBytesPerTrigger", limit),
        least,
        seconds("maxTriggerDelay", given.get("maxtriggerdelay", "15m")),
    )


def _splits(given: Mapping[str, str]) -> Splits:
    return Splits(
        whole("minPartitions", given["minpartitions"], 1) if "minpartitions" in given else None,
        whole("maxRecordsPerPartition", given["maxrecordsperpartition"], 1)
        if "maxrecordsperpartition" in given
        else None,
        size("maxBytesPerPartition", given.get("maxbytesperpartition", "256m")),
        "maxbytesperpartition" not in given,
    )


def _commits(given: Mapping[str, str], group: str | None) -> bool:
    text = given.get("commitoffsets")
    commit = group is not None if text is None else truth("commitOffsets", text)
    if commit and group is None:
        raise OptionError("commitOffsets is true: set kafka.group.id to commit to")
    return commit


def _agree(options: SourceOptions) -> None:
    """Check that a batch can have something between its start and its end."""
    start, end = options.starting, options.ending
    if start.kind is Kind.LATEST:
        raise OptionError(
            "startingOffsets is latest, and a batch would have nothing to read; it can be earliest"
        )
    if end.kind is Kind.EARLIEST:
        raise OptionError(
            "endingOffsets is earliest, and a batch would have nothing to read; it can be latest"
        )
    for position, word, number in (
        (start, "latest", positions.LATEST),
        (end, "earliest", positions.EARLIEST),
    ):
        for partition, offset in (position.of or {}).items():
            if position.kind is Kind.OFFSETS and offset == number:
                raise OptionError(
                    f"{position.option} of {partition} is {number} ({word}), which a batch can't have"
                )
    if start.kind is end.kind and start.of is not None and end.of is not None:
        if start.of.keys() != end.of.keys():
            differ = sorted(start.of.keys() ^ end.of.keys())[0]
            raise OptionError(f"{start.option} and {end.option} name different partitions, such as {differ}")
        for partition, at in start.of.items():
            if 0 <= end.of[partition] < at:
                raise OptionError(
                    f"{start.option} of {partition} is {at}, behind its {end.option}, {end.of[partition]}"
                )
