"""The options of the data source: name, default, meaning, and differences from Spark's own connector.

Names are case-insensitive, as in Spark. The table in ``docs/spark.md`` is made of these; a test compares them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NamedTuple

from . import kafka
from .errors import OptionError


class Option(NamedTuple):
    """An option and its documentation; ``differs`` is empty if it works as in Spark's connector."""

    name: str
    default: str
    meaning: str
    differs: str = ""


OPTIONS: Final = (
    Option(
        "kafka.bootstrap.servers",
        "(required)",
        "Brokers to connect to first, `host:port`, separated by commas.",
    ),
    Option(
        "subscribe",
        "",
        "Topics to read, separated by commas. Set exactly one of `subscribe`, `subscribePattern` and `assign`.",
    ),
    Option(
        "subscribePattern",
        "",
        "A regular expression that matches anywhere in a topic's name; use `^…$` for whole names. A stream also finds"
        " topics created later.",
        "Python's regular expressions.",
    ),
    Option(
        "assign",
        "",
        'Partitions to read: `{"orders":[0,1]}`.',
        "A partition that doesn't exist is an error; Spark's connector ignores it.",
    ),
    Option(
        "startingOffsets",
        "`latest` for streams, `earliest` for batches",
        '`earliest`, `latest` (streams only), an offset for each partition as `{"orders":{"0":23,"1":-2}}`'
        " (-2 earliest, -1 latest), or `group`. A stream that has a checkpoint ignores it.",
        "`group` starts at the committed offsets of `kafka.group.id`, and at the earliest offset where it has none.",
    ),
    Option(
        "startingTimestamp",
        "",
        "Start at the first record of each partition at or after this time, in milliseconds. Overrides the other two.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        'A time for each partition: `{"orders":{"0":1700000000000}}`. Overrides `startingOffsets`.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error`",
        "If no record is that late: `error`, or `latest` to start after the last record.",
    ),
    Option(
        "endingOffsets",
        "`latest`",
        "Batches only: `latest`, or for each partition the offset to stop before, -1 for latest.",
    ),
    Option(
        "endingTimestamp",
        "",
        "Batches only: stop before the first record at or after this time, in milliseconds.",
    ),
    Option("endingOffsetsByTimestamp", "", "Batches only: a time for each partition."),
    Option(
        "failOnDataLoss",
        "`true`",
        "Stop with an error if records are gone before they could be read.",
        "The error names the offsets and the cause: retention, deletion, truncation, or a topic that was deleted and"
        " created again. With `false` it is logged.",
    ),
    Option("includeHeaders", "`false`", "Add the column `headers`."),
    Option(
        "minPartitions",
        "",
        "Split large ranges into about this many tasks for a batch, at least.",
        "Without it, small ranges [share a task](#tasks).",
    ),
    Option("maxRecordsPerPartition", "", "Split ranges with more offsets than this into several tasks."),
    Option(
        "maxBytesPerPartition",
        "`256m`",
        "Split ranges with more bytes than this, as stored in the log, into several tasks.",
        "New.",
    ),
    Option("maxOffsetsPerTrigger", "", "Streams: the most offsets in a micro-batch, shared in proportion."),
    Option(
        "maxBytesPerTrigger",
        "",
        "Streams: the most bytes in a micro-batch, as stored in the log; an estimate.",
        "New.",
    ),
    Option(
        "minOffsetsPerTrigger",
        "",
        "Streams: wait until this many offsets can be read, or `maxTriggerDelay` has passed.",
        "`Trigger.AvailableNow` doesn't wait.",
    ),
    Option("maxTriggerDelay", "`15m`", "The longest that `minOffsetsPerTrigger` waits."),
    Option(
        "kafka.group.id",
        "",
        "The group that offsets are committed to.",
        "The query doesn't join the group. Spark's connector joins it, and commits nothing.",
    ),
    Option(
        "commitOffsets",
        "`true` with `kafka.group.id`",
        "Streams: commit the offsets of each finished micro-batch to the group. A commit that the broker refuses is"
        " logged; if you set `true`, it stops the stream.",
        "New.",
    ),
    Option(
        "groupIdPrefix", "", "No effect: queries join no group.", "Spark's connector needs groups to read."
    ),
    Option(
        "kafka.isolation.level",
        "`read_uncommitted`",
        "`read_committed` skips records of aborted and open transactions.",
    ),
    Option(
        "segments",
        "`auto`",
        "Let executors read the broker's segment files where they can see them: `auto`, `always` or `never`.",
        "New.",
    ),
    Option(
        "onCorrupt",
        "`fail`",
        "What to do with a record batch that can't be decoded: `fail`, or `deadletter` to send it to"
        " `deadLetterTopic` and go on.",
        "New.",
    ),
    Option(
        "deadLetterTopic",
        "",
        "The topic for record batches that can't be decoded: their bytes as the value, their place and the reason in"
        " headers. A task that is retried sends them again.",
        "New.",
    ),
    Option(
        "fetchOffset.numRetries",
        "`3`",
        "How often to ask again if the latest offset is before one that was read already.",
        "Unreachable brokers are retried until the timeout.",
    ),
    Option("fetchOffset.retryIntervalMs", "`1000`", "Milliseconds between those."),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "`kafka.default.api.timeout.ms`",
        "How long a task may wait for records, in milliseconds.",
        "Default: 120 s.",
    ),
)


@dataclass(frozen=True)
class OptionNames:
    """The names of a reader's or a writer's options; Kafka's settings are without ``kafka.``."""

    own: Iterable[str]
    settings: Collection[str]
    without_effect: Collection[str]
    refused: Mapping[str, str]
    purpose: str
    page: str

    def check(self, given: Iterable[str]) -> list[str]:
        """The names that have no effect. Raises OptionError for an unknown name, with the nearest known ones."""
        own = {name.lower(): name for name in self.own}
        idle = []
        for name in given:
            lower = name.lower()
            if lower in own:
                continue
            if lower.startswith("kafka."):
                bare = kafka.bare_name(lower)
                if bare in self.settings:
                    continue
                if why := kafka.refusal(bare, self.refused):
                    raise OptionError(f"the option {name} can't be set: {why}")
                if bare in self.without_effect:
                    idle.append(lower)
                    continue
            raise OptionError(f"unknown option {name!r}{self.purpose}{self._nearest(lower, own)}")
        return idle

    def _nearest(self, name: str, own: Mapping[str, str]) -> str:
        settings = {f"kafka.{bare}": f"kafka.{bare}" for bare in (*self.settings, *self.without_effect)}
        every = {**own, **settings}
        # Most likely it is a client's setting without its prefix.
        prefixed = [f"kafka.{name}"] if f"kafka.{name}" in every else []
        near = prefixed or get_close_matches(name, every, n=2, cutoff=0.6)
        if not near:
            return f"; {self.page} lists all options"
        return f"; did you mean {' or '.join(every[each] for each in near)}?"


_READER: Final = OptionNames(
    [option.name for option in OPTIONS],
    (*kafka.CONNECTING, *kafka.READING),
    kafka.WITHOUT_EFFECT,
    kafka.REFUSED,
    "",
    "docs/spark.md",
)
check: Final = _READER.check
