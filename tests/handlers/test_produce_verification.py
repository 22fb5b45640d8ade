"""Batches that begin a transaction wait for the word of its coordinator (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.badinput.requests import records
from tests.handlers.test_old_produce import Connection
from tests.handlers.test_transactions import CONFIG, Bench
from tests.support.handlers import handled, request_context, when_answered
from tests.support.log_dirs import World

from ottla_broker.background import Background
from ottla_broker.handlers import produce
from ottla_broker.log.files import Files
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.transaction_verifier import Answers, TransactionVerifier, Verification
from ottla_broker.requests.inline import Running
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.batch import crc_is_valid, read_header
from ottla_protocol.records.record import decode_records

T = ("t", 0)


class VerifyingBench(Bench):
    """The coordinator is this broker, or while ``remote`` another, whose answers a test gives."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.logs.environment.verifies_transactions = True
        self.remote = False
        self.here: tuple[int, Collection[tuple[str, int]]] = (0, ())
        self.questions: list[Callable[[Answers], None]] = []
        self.asked = 0
        self.added = 0
        self.services.transaction_verifier = TransactionVerifier(
            1,
            self.services.clock,
            self.verify_here,
            lambda name: 2 if self.remote else 1,
            lambda broker, verifications, answered: self.questions.append(answered),
        )

    def verify_here(
        self, asked: Verification, answered: Callable[[int, Collection[tuple[str, int]]], None]
    ) -> None:
        self.asked += 1
        self.added += asked.adds
        answered(*self.here)

    def sending(self, *values: bytes, **options: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.send(*values, **options))

    async def answer(self, answers: Answers) -> None:
        await asyncio.sleep(0.01)
        self.questions.pop(0)(answers)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[VerifyingBench]:
    background = Background(4)
    world = await World(tmp_path, background, CONFIG, Files(64)).load()
    yield VerifyingBench(world)
    world.kill()
    background.close()


async def test_only_the_first_batch_of_a_transaction_is_verified(bench: VerifyingBench) -> None:
    for number in range(3):
        assert (await bench.send(b"v", base_sequence=number)).error_code == 0
    assert bench.asked == 1
    await bench.mark(commit=True)
    assert (await bench.send(b"v", base_sequence=3)).error_code == 0
    assert bench.asked == 2
    assert (await bench.send(b"v", base_sequence=0, transactional=False, producer_id=8)).error_code == 0
    assert (await bench.plain(b"v")).error_code == 0
    assert bench.asked == 2
    assert not bench.partition.log.producers.verifications


async def test_a_repetition_needs_no_transaction(bench: VerifyingBench) -> None:
    assert (await bench.send(b"v", base_sequence=0)).error_code == 0
    await bench.mark(commit=True)
    again = await bench.send(b"v", base_sequence=0)
    assert (again.error_code, again.base_offset) == (0, 0)


@pytest.mark.parametrize(
    ("here", "version", "code", "text"),
    [
        ((0, {T}), 11, ErrorCode.TRANSACTION_ABORTABLE, None),
        ((0, {T}), 10, ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction"),
        (
            (ErrorCode.NOT_COORDINATOR, ()),
            11,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. Underlying error: NOT_COORDINATOR",
        ),
        (
            (ErrorCode.CONCURRENT_TRANSACTIONS, ()),
            9,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            "CONCURRENT_TRANSACTIONS",
        ),
        ((ErrorCode.CONCURRENT_TRANSACTIONS, ()), 12, ErrorCode.CONCURRENT_TRANSACTIONS, None),
        ((ErrorCode.PRODUCER_FENCED, ()), 9, ErrorCode.INVALID_PRODUCER_EPOCH, None),
        ((ErrorCode.PRODUCER_FENCED, ()), 12, ErrorCode.INVALID_PRODUCER_EPOCH, None),
        ((ErrorCode.INVALID_PRODUCER_ID_MAPPING, ()), 9, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
    ],
)
async def test_what_producers_hear_of_the_coordinator(
    bench: VerifyingBench,
    here: tuple[int, Collection[tuple[str, int]]],
    version: int,
    code: ErrorCode,
    text: str | None,
) -> None:
    bench.here = here
    answer = await bench.send(b"v", base_sequence=0, version=version)
    assert (answer.error_code, answer.error_message, answer.log_start_offset) == (code, text, -1)
    assert bench.partition.log.log_end_offset == 0
    bench.here = (0, ())
    assert (await bench.send(b"v", base_sequence=0, version=version)).error_code == 0


async def test_a_batch_is_not_appended_before_an_earlier_one_that_was_put_off(bench: VerifyingBench) -> None:
    bench.here = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())
    assert (await bench.send(b"v", base_sequence=5)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    bench.here = (0, ())
    assert (await bench.send(b"v", base_sequence=6)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await bench.send(b"v", base_sequence=5)).error_code == 0
    assert (await bench.send(b"v", base_sequence=6)).error_code == 0


@pytest.mark.parametrize("epoch", [0, 2], ids=["of a fenced instance", "never given out"])
async def test_a_batch_of_another_epoch_that_is_refused_changes_nothing(
    bench: VerifyingBench, epoch: int
) -> None:
    for number in range(4):
        assert (await bench.send(b"v", base_sequence=number, producer_epoch=1)).error_code == 0
    bench.here = (ErrorCode.PRODUCER_FENCED, ())
    refused = await bench.send(b"v", base_sequence=1, producer_epoch=epoch)
    assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await bench.send(b"v", base_sequence=4, producer_epoch=1)).error_code == 0
    await bench.mark(commit=True, epoch=1)
    refused = await bench.send(b"v", base_sequence=2, producer_epoch=epoch)
    assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    bench.here = (0, ())
    assert (await bench.send(b"v", base_sequence=5, producer_epoch=1)).error_code == 0


async def test_a_late_repetition_that_is_refused_changes_nothing(bench: VerifyingBench) -> None:
    for number in range(7):
        assert (await bench.send(b"v", base_sequence=number)).error_code == 0
    await bench.mark(commit=True)
    bench.here = (0, {T})
    assert (await bench.send(b"v", base_sequence=0)).error_code == ErrorCode.TRANSACTION_ABORTABLE
    bench.here = (0, ())
    assert (await bench.send(b"v", base_sequence=7)).error_code == 0


async def test_batches_wait_for_a_coordinator_elsewhere(bench: VerifyingBench) -> None:
    bench.remote = True
    sent = [bench.sending(b"v", base_sequence=number) for number in range(3)]
    await bench.answer([{}])
    answer = await sent[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)
    await bench.answer([{}])
    assert [(await each).base_offset for each in sent[1:]] == [1, 2]
    assert not bench.questions
    assert bench.services.transaction_verifier is not None
    assert bench.services.transaction_verifier.waiting_bytes == 0


async def test_a_marker_in_between_makes_the_answer_void(bench: VerifyingBench) -> None:
    """The answer may belong to the transaction that the marker has ended."""
    bench.remote = True
    late = bench.sending(b"v", base_sequence=0)
    await asyncio.sleep(0.01)
    assert await bench.mark(commit=False) is ErrorCode.NONE
    await bench.answer([{}])
    assert (await late).error_code == ErrorCode.INVALID_TXN_STATE
    assert bench.partition.last_stable_offset == bench.partition.high_watermark == 1


async def test_the_leader_moves_while_a_batch_waits(bench: VerifyingBench) -> None:
    bench.remote = True
    sent = bench.sending(b"v", base_sequence=0)
    await asyncio.sleep(0.01)
    bench.partition.follow(LeaderState(0, 2, 1, (2,), 1, (1, 2)))
    await bench.answer([{}])
    assert (await sent).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_the_replicas_are_waited_for_afterwards(bench: VerifyingBench) -> None:
    partition = bench.partition
    partition.lead(LeaderState(0, 1, 1, (1, 2), 1, (1, 2)))
    bench.remote = True
    sent = bench.sending(b"v", base_sequence=0)
    await bench.answer([{}])
    await asyncio.sleep(0.01)
    assert not sent.done()
    assert partition.log.log_end_offset == 1
    partition.fetched_by(2, 1, 0, -1)
    assert (await sent).base_offset == 0


def request_of(frame: bytearray, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(frame))
    return ProduceRequest(
        transactional_id="tx",
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )


def batch(*values: bytes, codec: int = 0) -> bytearray:
    return records(*values, codec=codec, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)


@pytest.mark.parametrize("compression", ["producer", "lz4"])
@pytest.mark.parametrize("codec", [0, 1])
async def test_a_frame_may_be_overwritten_meanwhile(
    bench: VerifyingBench, codec: int, compression: str
) -> None:
    bench.world.logs.update_config("t", replace(CONFIG, compression_type=compression))
    bench.remote = True
    frame = batch(b"v", codec=codec)
    answer = handled(produce, request_context(bench.services, 9, ApiKey.PRODUCE), request_of(frame))
    assert isinstance(answer, Running)
    frame[:] = bytes(len(frame))
    heard: list[Any] = []
    when_answered(answer, heard.append)
    await bench.answer([{}])
    assert heard[0].responses[0].partition_responses[0].error_code == 0
    (stored,) = bench.partition.log.reader.scan_batches(0)
    assert crc_is_valid(stored, 0, read_header(stored))
    assert [record.value for record in decode_records(stored)] == [b"v"]


@pytest.mark.parametrize("verified", [True, False])
async def test_without_acknowledgement(bench: VerifyingBench, verified: bool) -> None:
    bench.remote = True
    answer = handled(produce, request_context(bench.services, 9, ApiKey.PRODUCE), request_of(batch(b"v"), 0))
    assert isinstance(answer, Running)
    heard: list[Any] = []
    when_answered(answer, heard.append)
    await bench.answer([{} if verified else {T: ErrorCode.INVALID_TXN_STATE}])
    if verified:
        assert heard == [None]
    else:
        assert isinstance(heard[0], CloseConnection)
    assert bench.partition.log.log_end_offset == verified


async def test_a_defect_after_the_coordinator_s_answer_ends_the_connection(
    bench: VerifyingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    bench.remote = True
    answer = handled(produce, request_context(bench.services, 9, ApiKey.PRODUCE), request_of(batch(b"v")))
    assert isinstance(answer, Running)
    heard: list[Any] = []
    when_answered(answer, heard.append)
    monkeypatch.setattr(produce, "_append", broken)
    await bench.answer([{}])
    assert isinstance(heard[0], RuntimeError)  # for the responder, which closes the connection


async def test_a_client_that_leaves(bench: VerifyingBench) -> None:
    bench.remote = True
    answer = handled(produce, request_context(bench.services, 9, ApiKey.PRODUCE), request_of(batch(b"v")))
    assert isinstance(answer, Running)
    assert answer.abandon is not None
    answer.abandon()
    await bench.answer([{}])
    assert bench.partition.log.log_end_offset == 0
    assert bench.services.transaction_verifier is not None
    assert bench.services.transaction_verifier.waiting_bytes == 0


async def test_no_later_batch_gets_ahead(bench: VerifyingBench) -> None:
    """As in Kafka, nothing is read from the connection meanwhile: each batch would be asked about for itself."""
    bench.remote = True
    held: set[str] = set()
    context = request_context(bench.services, 9, ApiKey.PRODUCE)
    context.connection = Connection("1", held)
    answer = handled(produce, context, request_of(batch(b"v")))
    assert isinstance(answer, Running)
    assert held == {"1"}
    await bench.answer([{}])
    assert not held
    assert bench.partition.log.log_end_offset == 1


async def test_too_many_bytes_wait(bench: VerifyingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla_broker.produce.produce_verification.MAX_WAITING_BYTES", 300)
    bench.remote = True
    first = bench.sending(b"x" * 150, base_sequence=0)
    await asyncio.sleep(0)
    second = await bench.send(b"x" * 150, base_sequence=1)
    assert second.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    await bench.answer([{}])
    assert (await first).error_code == 0


async def test_it_can_be_switched_off(bench: VerifyingBench) -> None:
    bench.here = (ErrorCode.NOT_COORDINATOR, ())
    bench.services.config.apply_dynamic({"transaction.partition.verification.enable": "false"}, {})
    bench.world.logs.environment.verifies_transactions = False
    assert (await bench.send(b"v", base_sequence=0)).error_code == 0
    assert bench.asked == 0


@pytest.mark.parametrize("verified", [True, False])
async def test_version_12_adds_partitions(bench: VerifyingBench, verified: bool) -> None:
    bench.services.config.apply_dynamic(
        {"transaction.partition.verification.enable": str(verified).lower()}, {}
    )
    bench.world.logs.environment.verifies_transactions = verified
    for number in range(2):
        assert (await bench.send(b"v", base_sequence=number, version=12)).error_code == 0
    assert bench.added == 1
    assert await bench.mark(commit=True, epoch=1) is ErrorCode.NONE
    old = await bench.send(b"v", base_sequence=2, version=12)
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await bench.send(b"v", base_sequence=0, producer_epoch=1, version=12)).error_code == 0
    assert bench.partition.last_stable_offset == 3


async def test_a_producer_of_version_2_begins_at_sequence_0(bench: VerifyingBench) -> None:
    """A later batch that gets here first, on a connection of its own, would make the first one out of order."""
    later = await bench.send(b"v", base_sequence=1, version=12)
    assert later.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(2):
        assert (await bench.send(b"v", base_sequence=number, version=12)).error_code == 0
    # The state of a producer of version 3.9 may have expired.
    assert (await bench.send(b"v", base_sequence=5, producer_id=8, version=11)).error_code == 0


async def test_the_next_transaction_waits_for_the_marker_of_the_last(bench: VerifyingBench) -> None:
    """The partition is open under the epoch before: the batch begins a transaction, which is not added yet."""
    assert (await bench.send(b"v", base_sequence=0, version=12)).error_code == 0
    bench.here = (ErrorCode.CONCURRENT_TRANSACTIONS, ())
    early = await bench.send(b"v", base_sequence=0, producer_epoch=1, version=12)
    assert early.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.partition.log.log_end_offset == 1


async def test_a_marker_of_the_last_transaction_comes_while_a_partition_is_added(
    bench: VerifyingBench,
) -> None:
    assert (await bench.send(b"v", base_sequence=0, version=12)).error_code == 0
    bench.remote = True
    sent = [bench.sending(b"v", base_sequence=number, producer_epoch=1, version=12) for number in range(2)]
    await asyncio.sleep(0.01)
    assert await bench.mark(commit=True, epoch=1) is ErrorCode.NONE
    await bench.answer([{}])
    assert (await sent[0]).error_code == 0
    await bench.answer([{}])
    assert (await sent[1]).error_code == 0


async def test_a_marker_of_the_same_transaction_comes_while_a_partition_is_added(
    bench: VerifyingBench,
) -> None:
    bench.remote = True
    late = bench.sending(b"v", base_sequence=0, version=12)
    await asyncio.sleep(0.01)
    assert await bench.mark(commit=False, epoch=1) is ErrorCode.NONE
    await bench.answer([{}])
    assert (await late).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.partition.last_stable_offset == bench.partition.high_watermark == 1


@pytest.mark.parametrize("version", [11, 12])
async def test_a_partition_that_is_led_here_only_since_the_coordinator_was_asked(
    bench: VerifyingBench, version: int
) -> None:
    """No one has asked about it: its batch would begin a transaction that the coordinator doesn't know, nor end it."""
    other = bench.world.lead("other")
    other.follow(LeaderState(0, 2, 1, (2,), 1, (1, 2)))
    bench.remote = True
    data = [
        TopicProduceData(
            name=name,
            partition_data=[
                PartitionProduceData(
                    index=0,
                    records=memoryview(
                        records(b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
                    ),
                )
            ],
        )
        for name in ("t", "other")
    ]
    request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=5000, topic_data=data)

    async def send() -> list[int]:
        answer = await bench.call(produce, ApiKey.PRODUCE, request, version)
        return [each.partition_responses[0].error_code for each in answer.responses]

    sent = asyncio.create_task(send())
    await asyncio.sleep(0.01)
    other.lead(LeaderState(0, 1, 2, (1,), 2, (1,)))
    await bench.answer([{}])
    assert await sent == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert other.log.log_end_offset == 0
    # The client sends it again.
    sent = asyncio.create_task(send())
    await bench.answer([{}])
    assert await sent == [ErrorCode.NONE, ErrorCode.NONE]
    assert other.log.log_end_offset == 1


async def test_unverified_batches_are_refused_by_the_log(bench: VerifyingBench) -> None:
    """A switch-on between request and append, or a defect."""
    bench.services.transaction_verifier = None
    assert (await bench.send(b"v", base_sequence=0)).error_code == ErrorCode.INVALID_TXN_STATE
