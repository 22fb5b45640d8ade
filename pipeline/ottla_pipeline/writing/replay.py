"""Finds what an earlier try of a batch has written, by the headers of the topic's records.

A record is recognised by its content: key, value, headers, and the partition if its row named one. So the order of rows
may change when a task is tried again; equal rows are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from ottla_client import TopicPartition

from .errors import WriteError
from .identity import HEADER, Identity, is_pinned
from .rows import Headers, Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

log = logging.getLogger("ottla_pipeline")

_DIGEST = 16
_length = Struct(">q").pack
_POLL_MS = 1_000


class WrittenRecords:
    """Records that the topic has already: digests of their contents, with counts. Each can be matched once."""

    def __init__(self, digests: Sequence[bytes] = ()) -> None:
        self._known, self._left = np.unique(_array(digests), return_counts=True)

    def __len__(self) -> int:
        return int(self._left.sum())

    def copy(self) -> WrittenRecords:
        """The same records with the same counts, to be matched by themselves."""
        made = WrittenRecords()
        made._known, made._left = self._known, self._left.copy()
        return made

    def take(self, digests: Sequence[bytes]) -> NDArray[np.bool_]:
        """The rows of these that are in the topic already; of equal rows, the first ones."""
        if not len(self._known) or not digests:
            return np.zeros(len(digests), np.bool_)
        distinct, inverse, counts = np.unique(_array(digests), return_inverse=True, return_counts=True)
        at = np.minimum(np.searchsorted(self._known, distinct), len(self._known) - 1)
        found = self._known[at] == distinct
        there = np.where(found, self._left[at], 0)
        # The index of each row among its equals: its place in the sorted order, less where its equals begin.
        order = np.argsort(inverse, kind="stable")
        rank = np.empty(len(inverse), np.int64)
        rank[order] = np.arange(len(inverse)) - np.repeat(np.cumsum(counts) - counts, counts)
        self._left[at[found]] -= np.minimum(counts, there)[found]
        taken: NDArray[np.bool_] = rank < there[inverse]
        return taken


def _array(digests: Sequence[bytes]) -> NDArray[np.bytes_]:
    return np.array(digests, dtype=f"S{_DIGEST}")


def digests_of(rows: Rows) -> list[bytes]:
    """The digests of rows' contents."""
    values = rows.value_list()
    keys: Iterable[bytes | None] = rows.key_list() or [None] * len(values)
    headers: Iterable[Headers] = rows.header_lists() or [()] * len(values)
    return [
        _digest(key, value, its, rows.partition)
        for key, value, its in zip(keys, values, headers, strict=True)
    ]


def _digest(key: bytes | None, value: bytes | None, headers: Headers, partition: int | None) -> bytes:
    state = blake2b(digest_size=_DIGEST)
    for field in (key, value):
        state.update(_length(-1 if field is None else len(field)))
        state.update(field or b"")
    state.update(_length(-1 if partition is None else partition))
    for name, content in headers:
        raw = name.encode()
        state.update(_length(len(raw)) + raw)
        state.update(_length(-1 if content is None else len(content)) + (content or b""))
    return state.digest()


def find(
    consumer: dict[str, Any],
    spans: Mapping[TopicPartition, tuple[int, int]],
    identity: Identity,
    any_task: bool,
) -> WrittenRecords:
    """The records that ``identity`` (or its whole batch) has written between these offsets, ends exclusive.

    ``consumer`` has the arguments of ``ottla_client``'s Consumer. Raises its errors, and WriteError if no more records
    come before the end.
    """
    pattern = identity.pattern(any_task)
    digests: list[bytes] = []
    for table in _tables(consumer, spans):
        for batch in table.to_batches():
            digests += _matching(batch, spans, pattern)
    return WrittenRecords(digests)


def _tables(options: dict[str, Any], spans: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[pa.Table]:
    from ottla_client.sync import Consumer

    left = {partition: end for partition, (start, end) in spans.items() if start < end}
    if not left:
        return
    # Records that retention has removed meanwhile count as not written.
    with Consumer(
        **options, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(list(left))
        for partition in left:
            consumer.seek(partition, spans[partition][0])
        patience = max(1, options.get("default_api_timeout_ms", 60_000) // _POLL_MS)
        idle = 0
        while left:
            table = consumer.poll_arrow(_POLL_MS, headers=True)
            if table.num_rows:
                idle = 0
                yield table
            else:
                idle += 1
            for partition, end in list(left.items()):
                if consumer.position(partition) >= end:
                    del left[partition]
                    consumer.pause(partition)
            if idle > patience:
                raise WriteError(
                    f"what is written already can't be read: {next(iter(left))} gives no records before offset "
                    f"{next(iter(left.values()))} within {idle * _POLL_MS // 1000} s"
                )


def _matching(
    batch: pa.RecordBatch, spans: Mapping[TopicPartition, tuple[int, int]], pattern: str
) -> Iterator[bytes]:
    """The digests of the records within ``spans`` whose header matches."""
    headers = batch.column("headers")
    pairs = pc.list_flatten(headers)
    if not len(pairs):
        return
    named = pc.equal(pairs.field("key"), HEADER)
    ours = pc.and_kleene(named, pc.match_substring_regex(pairs.field("value"), pattern))
    owners = pc.list_parent_indices(headers).filter(pc.fill_null(ours, False))
    for row in batch.take(pc.unique(owners)).to_pylist():
        first, end = spans[TopicPartition(row["topic"], row["partition"])]
        if not first <= row["offset"] < end:
            continue
        its = [(pair["key"], pair["value"]) for pair in row["headers"]]
        # Our header is the last one of that name.
        mine = max(place for place, (name, _) in enumerate(its) if name == HEADER)
        pinned = is_pinned(its.pop(mine)[1] or b"")
        yield _digest(row["key"], row["value"], tuple(its), row["partition"] if pinned else None)
