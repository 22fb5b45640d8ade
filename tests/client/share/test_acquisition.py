"""Records out of the bytes of a ShareFetch: what was acquired is handed out, or the client decides about it."""

from __future__ import annotations

import pytest
from tests.client.consumer.chunks import batch, marker

from ottla_client import AcknowledgeType, TopicPartition
from ottla_client.consumer import records
from ottla_client.consumer.acquired import Acquired
from ottla_client.consumer.records import RecordReader
from ottla_client.errors import CorruptBatchError, DeserializationError
from ottla_client.requests import large_batch
from ottla_client.share_consumer.acknowledgements import GAP
from ottla_client.share_consumer.acquisition import Acquisition, Outgoing
from ottla_client.share_consumer.settings import ShareConsumerSettings
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.record import finish_batch

RELEASE, REJECT = AcknowledgeType.RELEASE, AcknowledgeType.REJECT
Run = tuple[int, int, int]


class Source:
    generation = 0

    def acknowledge(self, outgoing: Outgoing) -> None:
        raise AssertionError


class Reading:
    """Reads one acquisition to its end."""

    def __init__(self, *batches: bytes, acquired: list[Run], failing: int | None = None) -> None:
        def deserialize(value: bytes) -> int:
            if int(value) == failing:
                raise ValueError("not this one")
            return int(value)

        self.source = Source()
        settings = ShareConsumerSettings(group_id="g", value_deserializer=deserialize)
        self.reader = RecordReader(settings)
        self.acquisition = Acquisition(
            self.source, TopicPartition("t", 0), bytes(16), b"".join(batches), Acquired(acquired)
        )
        self.noted: list[Run] = []

    def _note(self, acquisition: Acquisition, first: int, last: int, kind: int) -> None:
        assert acquisition is self.acquisition
        self.noted.append((first, last, kind))

    def take(self, count: int = 100) -> list[tuple[int, int | None]]:
        """Offsets and delivery counts; the value of each record is its offset."""
        rows = self.acquisition.take(count, self.reader, self._note)
        if rows is None:
            return []
        records = list(rows.records())
        assert [record.value for record in records] == [record.offset for record in records]
        return [(record.offset, record.delivery_count) for record in records]

    def rest(self) -> list[int]:
        offsets = []
        while taken := self.take():
            offsets += [offset for offset, _ in taken]
        return offsets


def test_only_what_was_acquired_is_handed_out() -> None:
    reading = Reading(batch(0, 5), batch(5, 5), acquired=[(1, 2, 1), (4, 6, 3), (9, 9, 2)])
    assert reading.take(1) == [(1, 1)]
    assert reading.take() == [(2, 1), (4, 3), (5, 3), (6, 3), (9, 2)]
    assert reading.take() == []
    assert reading.take() == []
    assert reading.noted == []


def test_offsets_without_a_record_are_gaps() -> None:
    """A marker at 3, and a batch that compaction has removed between 5 and 10."""
    reading = Reading(
        batch(0, 3), marker(3, 7, commit=True), batch(4, 1), batch(10, 2), acquired=[(0, 10, 1)]
    )
    assert reading.rest() == [0, 1, 2, 4, 10]
    gaps = {offset for first, last, kind in reading.noted for offset in range(first, last + 1) if kind == GAP}
    assert gaps == {3, 5, 6, 7, 8, 9}
    assert {kind for _, _, kind in reading.noted} == {GAP}


def test_what_the_response_has_no_bytes_of_is_released() -> None:
    reading = Reading(batch(0, 3), batch(3, 3)[:-1], acquired=[(0, 9, 1)])
    assert reading.rest() == [0, 1, 2]
    assert reading.noted == [(3, 9, RELEASE)]
    nothing = Reading(acquired=[(4, 6, 1)])
    assert nothing.rest() == []
    assert nothing.noted == [(4, 6, RELEASE)]


def test_a_record_that_cannot_be_deserialized_is_raised_and_passed() -> None:
    reading = Reading(batch(0, 6), acquired=[(0, 5, 1)], failing=2)
    assert [offset for offset, _ in reading.take()] == [0, 1]
    with pytest.raises(DeserializationError) as caught:
        reading.take()
    assert caught.value.offset == 2
    assert reading.rest() == [3, 4, 5]
    assert reading.noted == []
    others = Reading(batch(0, 6), acquired=[(0, 1, 1), (3, 5, 1)], failing=2)
    assert others.rest() == [0, 1, 3, 4, 5]


def test_a_corrupt_batch_is_rejected_and_passed() -> None:
    bad = bytearray(batch(3, 3))
    bad[-1] ^= 1
    reading = Reading(batch(0, 3), bytes(bad), batch(6, 3), acquired=[(1, 4, 1), (7, 8, 1)])
    assert [offset for offset, _ in reading.take()] == [1, 2]
    with pytest.raises(CorruptBatchError, match="checksum"):
        reading.take()
    assert reading.noted == [(3, 4, REJECT)]
    assert reading.rest() == [7, 8]


@pytest.mark.parametrize(
    ("count", "good", "why"),
    [(24, 20, "bytes are left behind"), (26, 25, "1 records of the batch are missing")],
)
def test_a_large_batch_that_turns_out_to_be_corrupt_is_passed(
    monkeypatch: pytest.MonkeyPatch, count: int, good: int, why: str
) -> None:
    """The rest of it was read once more, and the good records behind it were released."""
    monkeypatch.setattr(records, "MOST_AT_ONCE", 10)
    monkeypatch.setattr(large_batch, "PIECE_RECORDS", 10)
    sound = batch(0, 25)
    wrong = read_header(sound)._replace(record_count=count)
    bad = bytes(finish_batch(wrong, bytearray(sound)))
    reading = Reading(bad, batch(25, 3), acquired=[(0, 27, 1)])
    assert [offset for _ in range(0, good, 10) for offset, _ in reading.take()] == list(range(good))
    with pytest.raises(CorruptBatchError, match=why):
        reading.take()
    rejected = [(20, 24, REJECT)] if good == 20 else []
    assert reading.noted == rejected
    assert reading.rest() == [25, 26, 27]
    assert reading.noted == rejected


def test_bytes_that_are_no_batch_release_the_rest() -> None:
    reading = Reading(batch(0, 3), b"\xff" * 80, acquired=[(0, 8, 1)])
    assert [offset for offset, _ in reading.take()] == [0, 1, 2]
    with pytest.raises(CorruptBatchError):
        reading.take()
    assert reading.noted == [(3, 8, RELEASE)]
    assert reading.rest() == []


def test_it_is_void_when_its_session_has_ended() -> None:
    reading = Reading(batch(0, 3), acquired=[(0, 2, 1)])
    assert reading.acquisition.valid
    reading.source.generation += 1
    assert not reading.acquisition.valid
