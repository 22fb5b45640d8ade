"""The options of the data source: name, default, meaning, and what differs from Spark's own connector.

Names are compared without regard to case, as Spark does. The table in ``docs/spark.md`` is this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, NamedTuple

from . import kafka
from .errors import OptionError


class Option(NamedTuple):
    """An option as the documentation has it; ``differs`` is empty where it is as in Spark's connector."""

    name: str
    default: str
    meaning: str
    differs: str = ""


OPTIONS: Final = (
    Option("kafka.bootstrap.servers", "(required)", "Brokers to ask first, `host:port` with commas between."),
    Option(
        "subscribe",
        "",
        "Topics to read, with commas between. One of the three ways to name topics is required.",
    ),
    Option(
        "subscribePattern",
        "",
        "A regular expression that is found anywhere in the names of topics (`^…$` for whole names); a stream finds"
        " topics that are made later.",
        "Python's regular expressions.",
    ),
    Option(
        "assign",
        "",
        'Partitions to read: `{"orders":[0,1]}`.',
        "An error names a partition that there isn't; Spark's connector leaves it out.",
    ),
    Option(
        "startingOffsets",
        "`latest` for streams, `earliest` for batches",
        '`earliest`, `latest` (streams only), an offset for each partition as `{"orders":{"0":23,"1":-2}}`'
        " (-2 earliest, -1 latest), or `group`. A stream that goes on from a checkpoint doesn't look at it.",
        "`group` starts at what `kafka.group.id` has committed, and at the earliest offset where it has nothing.",
    ),
    Option(
        "startingTimestamp",
        "",
        "Start at the first record of each partition that is as late as this time in milliseconds. Goes before the"
        " other two.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        'A time for each partition: `{"orders":{"0":1700000000000}}`. Goes before `startingOffsets`.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error`",
        "Where no record is as late: `error`, or `latest` to start behind the last record.",
    ),
    Option(
        "endingOffsets",
        "`latest`",
        "Batches only: `latest`, or an offset (the first not to be read) for each partition, -1 for latest.",
    ),
    Option("endingTimestamp", "", "Batches only: end before the first record as late as this."),
    Option("endingOffsetsByTimestamp", "", "Batches only: the same by partition."),
    Option(
        "failOnDataLoss",
        "`true`",
        "Whether to stop when records that were to be read have gone.",
        "Says which offsets, and whether by retention, deletion, truncation, or because the topic was made again."
        " With `false` the same is logged.",
    ),
    Option("includeHeaders", "`false`", "Whether there is a column `headers`."),
    Option(
        "minPartitions",
        "",
        "At least about so many tasks for a batch: larger ranges are split.",
        "Without it, small ranges [share a task](#tasks).",
    ),
    Option("maxRecordsPerPartition", "", "At most so many offsets for a task: larger ranges are split."),
    Option(
        "maxBytesPerPartition",
        "`256m`",
        "At most about so many bytes for a task, as they lie in the log: larger ranges are split.",
        "New.",
    ),
    Option(
        "maxOffsetsPerTrigger", "", "Streams: at most so many offsets in a micro-batch, shared in proportion."
    ),
    Option(
        "maxBytesPerTrigger",
        "",
        "Streams: at most about so many bytes in a micro-batch, as they lie in the log.",
        "New.",
    ),
    Option(
        "minOffsetsPerTrigger",
        "",
        "Streams: wait until there are so many offsets to read, or `maxTriggerDelay` has passed.",
        "`Trigger.AvailableNow` doesn't wait.",
    ),
    Option("maxTriggerDelay", "`15m`", "The longest that `minOffsetsPerTrigger` waits."),
    Option(
        "kafka.group.id",
        "",
        "The group that offsets are committed to.",
        "Not joined as a member. Spark's connector joins it, and commits nothing.",
    ),
    Option(
        "commitOffsets",
        "`true` with `kafka.group.id`",
        "Streams: commit the offsets of each finished micro-batch to the group. Set to `true`, a commit that the"
        " broker refuses stops the stream; by default it is logged.",
        "New.",
    ),
    Option("groupIdPrefix", "", "No effect: no group is joined.", "Spark's connector needs groups to read."),
    Option(
        "kafka.isolation.level",
        "`read_uncommitted`",
        "`read_committed` leaves out records of transactions that were aborted or are still open.",
    ),
    Option(
        "segments",
        "`auto`",
        "Whether executors read segment files of the broker where they see them: `auto`, `always` or `never`.",
        "New.",
    ),
    Option(
        "onCorrupt",
        "`fail`",
        "What to do with a record batch that can't be decoded: `fail`, or `deadletter` to put it aside in"
        " `deadLetterTopic` and go on.",
        "New.",
    ),
    Option(
        "deadLetterTopic",
        "",
        "A topic for record batches that can't be decoded: their bytes as a value, where they were and why in headers."
        " A task that is tried again puts them there again.",
        "New.",
    ),
    Option(
        "fetchOffset.numRetries",
        "`3`",
        "How often to ask again for latest offsets that lie before what was read already.",
        "Brokers that can't be reached are asked again until the time is up.",
    ),
    Option("fetchOffset.retryIntervalMs", "`1000`", "Milliseconds between those."),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "`kafka.default.api.timeout.ms`",
        "How long a task may wait for records, in milliseconds.",
        "Default: 120 s.",
    ),
)

_KNOWN: Final = {option.name.lower(): option.name for option in OPTIONS}
_CLIENT: Final = (*kafka.CONNECTING, *kafka.READING)


def check(given: Iterable[str]) -> list[str]:
    """The names that have no effect. Raises OptionError for an unknown name, with the nearest known ones."""
    idle = []
    for name in given:
        lower = name.lower()
        if lower in _KNOWN:
            continue
        if lower.startswith("kafka."):
            bare = kafka.bare_name(lower)
            if bare in _CLIENT:
                continue
            if why := kafka.refusal(bare):
                raise OptionError(f"the option {name} can't be set: {why}")
            if bare in kafka.WITHOUT_EFFECT:
                idle.append(lower)
                continue
        raise OptionError(f"there is no option {name!r}{_nearest(lower)}")
    return idle


def _nearest(name: str) -> str:
    every = {**_KNOWN, **{f"kafka.{bare}": f"kafka.{bare}" for bare in (*_CLIENT, *kafka.WITHOUT_EFFECT)}}
    # A client's setting without its prefix is the likeliest mistake.
    prefixed = [f"kafka.{name}"] if f"kafka.{name}" in every else []
    near = prefixed or get_close_matches(name, every, n=2, cutoff=0.6)
    if not near:
        return "; docs/spark.md lists those that there are"
    return f"; did you mean {' or '.join(every[each] for each in near)}?"
