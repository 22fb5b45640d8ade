"""Questions to transaction coordinators: batched per broker, answered to each produce request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import pytest
from tests.support.clock import FakeClock

from ottla_broker.cluster.verification_transport import VerificationTransport, answers_of, request_of
from ottla_broker.replica.transaction_verifier import (
    Answers,
    TransactionVerifier,
    Verdicts,
    Verification,
)
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

A, B, C = ("a", 0), ("a", 1), ("b", 0)


class Bench:
    """This is broker 1. Ids that begin with h are coordinated here, those with a digit on that broker."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Sequence[Verification], Callable[[Answers], None]]] = []
        self.here: tuple[int, Collection[tuple[str, int]]] = (0, ())
        self.heard: list[tuple[str, Verdicts]] = []
        self.clock = FakeClock()
        self.verifier = TransactionVerifier(
            1, self.clock, self.verify_here, self.broker_of, lambda *asked: self.asked.append(asked)
        )

    def broker_of(self, name: str) -> int | None:
        if name.startswith("h"):
            return 1
        return int(name[0]) if name[0].isdigit() else {"n": None, "l": -1}[name[0]]

    def verify_here(
        self, asked: Verification, answered: Callable[[int, Collection[tuple[str, int]]], None]
    ) -> None:
        answered(*self.here)

    def ask(
        self,
        name: str,
        *partitions: tuple[str, int],
        producer: tuple[int, int] = (7, 0),
        tag: str = "",
        adds: bool = False,
    ) -> None:
        self.verifier.verify(
            Verification(name, *producer, partitions or (A,), adds),
            lambda verdicts: self.heard.append((tag or name, dict(verdicts))),
        )

    def answer(self, answers: Answers) -> Sequence[Verification]:
        _, verifications, answered = self.asked.pop(0)
        answered(answers)
        return verifications


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("here", "verdicts"),
    [
        ((0, ()), {}),
        ((0, {B}), {B: ErrorCode.TRANSACTION_ABORTABLE}),
        ((ErrorCode.CONCURRENT_TRANSACTIONS, ()), dict.fromkeys((A, B), ErrorCode.CONCURRENT_TRANSACTIONS)),
        ((ErrorCode.PRODUCER_FENCED, ()), dict.fromkeys((A, B), ErrorCode.INVALID_PRODUCER_EPOCH)),
    ],
)
def test_this_broker_is_the_coordinator(
    bench: Bench, here: tuple[int, Collection[tuple[str, int]]], verdicts: Verdicts
) -> None:
    bench.here = here
    bench.ask("here", A, B)
    assert bench.heard == [("here", verdicts)]
    assert not bench.asked


def test_there_is_no_coordinator(bench: Bench) -> None:
    bench.ask("none")
    bench.ask("leaderless")
    none = {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert bench.heard == [("none", none), ("leaderless", none)]
    alone = TransactionVerifier(1, bench.clock, bench.verify_here, bench.broker_of, None)
    alone.verify(Verification("2", 7, 0, (A,)), lambda verdicts: bench.heard.append(("2", verdicts)))
    assert bench.heard[-1] == ("2", none)


def test_a_broker_gets_one_request_at_a_time(bench: Bench) -> None:
    bench.ask("2-x")
    bench.ask("2-y", A, B)
    bench.ask("3-z")
    bench.ask("2-z", C)
    assert [(broker, [each.transactional_id for each in asked]) for broker, asked, _ in bench.asked] == [
        (2, ["2-x"]),
        (3, ["3-z"]),
    ]
    bench.answer([{}])
    assert [each.transactional_id for each in bench.asked[-1][1]] == ["2-y", "2-z"]
    bench.answer(ErrorCode.NETWORK_EXCEPTION)
    bench.answer([{B: ErrorCode.TRANSACTION_ABORTABLE}, {}])
    assert bench.heard == [
        ("2-x", {}),
        ("3-z", {A: ErrorCode.NETWORK_EXCEPTION}),
        ("2-y", {B: ErrorCode.TRANSACTION_ABORTABLE}),
        ("2-z", {}),
    ]
    bench.ask("2-x")
    bench.answer(None)
    assert bench.heard[-1] == ("2-x", {})
    assert not bench.asked


def test_requests_of_one_transaction_share_a_question(bench: Bench) -> None:
    bench.ask("2-first")
    bench.ask("2-x", A, B, tag="one")
    bench.ask("2-x", B, C, tag="two")
    bench.answer([{}])
    verifications = bench.answer([{A: ErrorCode.INVALID_TXN_STATE, C: ErrorCode.INVALID_TXN_STATE}])
    assert [(each.transactional_id, list(each.partitions)) for each in verifications] == [("2-x", [A, B, C])]
    assert bench.heard[1:] == [
        ("one", {A: ErrorCode.INVALID_TXN_STATE}),
        ("two", {C: ErrorCode.INVALID_TXN_STATE}),
    ]


def test_another_instance_of_a_producer_takes_the_place(bench: Bench) -> None:
    bench.ask("2-first")
    bench.ask("2-x", producer=(7, 1), tag="epoch 1")
    bench.ask("2-x", producer=(7, 2), tag="epoch 2")
    assert bench.heard == [("epoch 1", {A: ErrorCode.INVALID_PRODUCER_EPOCH})]
    bench.ask("2-x", producer=(7, 1), tag="late")
    assert bench.heard[-1] == ("late", {A: ErrorCode.INVALID_PRODUCER_EPOCH})
    bench.ask("2-x", producer=(8, 0), tag="another id")
    assert bench.heard[-1] == ("epoch 2", {A: ErrorCode.NETWORK_EXCEPTION})
    bench.answer([{}])
    assert [each[:3] for each in bench.answer([{}])] == [("2-x", 8, 0)]
    assert bench.heard[-1] == ("another id", {})


def test_a_question_while_an_answer_is_given_out(bench: Bench) -> None:
    """A produce request that goes on may bring the next one at once."""
    bench.verifier.verify(Verification("2-x", 7, 0, (A,)), lambda _: bench.ask("2-y"))
    bench.answer([{}])
    assert [each.transactional_id for each in bench.asked[0][1]] == ["2-y"]
    assert len(bench.asked) == 1
    bench.answer([{}])
    assert bench.heard == [("2-y", {})]


def test_a_defect_keeps_no_other_request_waiting(bench: Bench) -> None:
    def broken(_: Verdicts) -> None:
        raise RuntimeError

    bench.verifier.verify(Verification("2-x", 7, 0, (A,)), broken)
    for name in ("2-x", "2-y"):
        bench.verifier.verify(Verification(name, 7, 0, (A,)), broken)
        bench.ask(name)
    bench.answer([{}])
    bench.answer([{}, {}])
    assert bench.heard == [("2-x", {}), ("2-y", {})]
    bench.ask("2-z")
    bench.answer(ErrorCode.NETWORK_EXCEPTION)
    assert bench.heard[-1] == ("2-z", {A: ErrorCode.NETWORK_EXCEPTION})


async def test_a_question_that_can_not_be_asked_is_answered() -> None:
    class Broken:
        async def connection(self, *_: object) -> None:
            raise RuntimeError

    transport = VerificationTransport(cast(Any, Broken()))
    answered: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
    transport(2, [Verification("x", 7, 3, (A,))], answered.set_result)
    assert await asyncio.wait_for(answered, 60) is ErrorCode.NETWORK_EXCEPTION
    await transport.close()


def test_the_request_and_its_response() -> None:
    verifications = [Verification("x", 7, 3, (A, C, B)), Verification("y", 8, 0, (A,))]
    request = request_of(verifications)
    for version in (4, 5):
        data = bytes(request.encode(version))
        assert AddPartitionsToTxnRequest.decode(memoryview(data), version, 0) == request
    first, second = request.transactions
    assert (first.transactional_id, first.producer_id, first.producer_epoch) == ("x", 7, 3)
    assert first.verify_only
    assert second.verify_only
    assert [(topic.name, topic.partitions) for topic in first.topics] == [("a", [0, 1]), ("b", [0])]

    def results(*codes: int) -> list[AddPartitionsToTxnTopicResult]:
        made = [
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index, code in enumerate(codes)
        ]
        return [AddPartitionsToTxnTopicResult(name="a", results_by_partition=made)]

    answer = AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id="y", topic_results=results(ErrorCode.PRODUCER_FENCED)),
            AddPartitionsToTxnResult(transactional_id="x", topic_results=results(0, 9999)),
        ]
    )
    assert answers_of(verifications, answer) == [
        {B: ErrorCode.UNKNOWN_SERVER_ERROR, C: ErrorCode.UNKNOWN_SERVER_ERROR},
        {A: ErrorCode.INVALID_PRODUCER_EPOCH},
    ]


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_response_with_one_error_for_all(code: ErrorCode, verdict: ErrorCode) -> None:
    assert answers_of([Verification("x", 7, 3, (A,))], AddPartitionsToTxnResponse(error_code=code)) is verdict


# Partitions that are added


def test_adding_is_tried_again_while_the_transaction_before_ends(bench: Bench) -> None:
    bench.ask("2x", adds=True)
    for _ in range(3):
        assert bench.answer([{A: ErrorCode.CONCURRENT_TRANSACTIONS}])[0].adds
        assert not bench.asked
        bench.clock.advance(0.02)
    bench.answer([{}])
    assert bench.heard == [("2x", {})]


def test_adding_is_not_tried_for_long(bench: Bench) -> None:
    bench.ask("2x", adds=True)
    while bench.asked:
        bench.answer([{A: ErrorCode.CONCURRENT_TRANSACTIONS}])
        bench.clock.advance(0.02)
    assert bench.heard == [("2x", {A: ErrorCode.CONCURRENT_TRANSACTIONS})]
    assert bench.clock.time < FakeClock().time + 1


def test_a_question_and_an_addition_do_not_mix(bench: Bench) -> None:
    """A client moves from one version to the other; its earlier request is sent again."""
    bench.ask("2first")
    bench.ask("2x", tag="asks")
    bench.ask("2x", tag="adds", adds=True)
    assert bench.heard == [("asks", {A: ErrorCode.NETWORK_EXCEPTION})]
    bench.answer([{}])
    assert [each.adds for each in bench.answer([{}])] == [True]
    assert ("adds", {}) in bench.heard


def test_a_coordinator_that_is_too_old_adds_nothing(bench: Bench) -> None:
    bench.ask("2x", adds=True)
    bench.answer(None)
    assert bench.heard == [("2x", {A: ErrorCode.UNSUPPORTED_VERSION})]


def test_the_coordinator_has_moved_here_meanwhile(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.ask("2x", adds=True)
    bench.answer([{A: ErrorCode.CONCURRENT_TRANSACTIONS}])
    monkeypatch.setattr(bench.verifier, "_broker_of", lambda name: 1)
    bench.clock.advance(0.02)
    assert bench.heard == [("2x", {A: ErrorCode.NOT_COORDINATOR})]


def test_the_request_between_brokers_says_whether_it_adds() -> None:
    asked = [Verification("x", 7, 0, [A], adds) for adds in (True, False)]
    assert [each.verify_only for each in request_of(asked).transactions] == [False, True]
