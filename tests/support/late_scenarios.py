"""What may happen to a transactional producer when requests come late: the table of scenarios.

Those of several instances with one id, and of requests between brokers, are in ``late_successors.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.support import late_successors as late_successors
from tests.support.late_drivers import Driver, StepFailed
from tests.support.late_frames import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Held,
    How,
)
from tests.support.late_scene import OFFSETS, RECORDS, Scene, scenario, write

_ALL_MOVES = "moved killed within refused back frozen after"


# EndTxn


@scenario(moves=_ALL_MOVES, kafka_fails=True)
def commit(scene: Scene) -> list[str]:
    """The commit of one transaction comes in the middle of the next, which is aborted."""
    producer = scene.producer()
    write(producer, "a")
    late = scene.hold(END_TXN)
    producer.commit()
    write(producer, "b")
    scene.deliver(late)
    producer.send("c")
    producer.abort()
    return ["a"]


@scenario(moves=_ALL_MOVES, kafka_fails=True)
def abort(scene: Scene) -> list[str]:
    """The abort of one transaction comes in the middle of the next, which is committed."""
    producer = scene.producer()
    write(producer, "a")
    late = scene.hold(END_TXN)
    producer.abort()
    write(producer, "b")
    scene.deliver(late)
    producer.send("c")
    producer.commit()
    return ["b", "c"]


@scenario(moves="moved back", kafka_fails=True)
def commit_two_later(scene: Scene) -> list[str]:
    """The commit comes after the next transaction was aborted, in the one after that."""
    producer = scene.producer()
    write(producer, "a")
    late = scene.hold(END_TXN)
    producer.commit()
    write(producer, "b")
    producer.abort()
    write(producer, "c")
    scene.deliver(late)
    producer.send("d")
    producer.abort()
    return ["a"]


@scenario(moves="moved back", kafka_fails=True)
def abort_after_abort(scene: Scene) -> list[str]:
    """The second of two aborts comes late."""
    producer = scene.producer()
    write(producer, "a")
    producer.abort()
    write(producer, "b")
    late = scene.hold(END_TXN)
    producer.abort()
    write(producer, "c")
    scene.deliver(late)
    producer.send("d")
    producer.commit()
    return ["c", "d"]


def _two_connections(scene: Scene, order: Callable[[list[Held]], list[Held]]) -> list[str]:
    producer = scene.producer()
    write(producer, "a")
    late = [scene.hold(END_TXN), scene.hold(END_TXN)]
    producer.commit()
    write(producer, "b")
    for held in order(late):
        scene.deliver(held)
    producer.send("c")
    producer.abort()
    return ["a"]


@scenario(moves="moved within", kafka_fails=True)
def commits_on_two_connections(scene: Scene) -> list[str]:
    """Two tries of a commit, each on a connection of its own, come late."""
    return _two_connections(scene, list)


@scenario(moves="moved", kafka_fails=True)
def commits_on_two_connections_reversed(scene: Scene) -> list[str]:
    """The same in the other order."""
    return _two_connections(scene, lambda late: late[::-1])


_PATIENT = {"socket.max.fails": 0, "socket.timeout.ms": 1000}


def _twice(scene: Scene, end: Callable[[Driver], None]) -> Driver:
    producer = scene.producer(_PATIENT)
    write(producer, "a")
    late = scene.hold(END_TXN, How.STALL)
    with ThreadPoolExecutor(1) as other:
        ended = other.submit(end, producer)
        late.wait(2)
        late.cut()
        ended.result(60)
    write(producer, "b")
    scene.deliver(late)
    producer.send("c")
    return producer


@scenario(moves="moved", clients="confluent", kafka_fails=True)
def two_commits_on_one_connection(scene: Scene) -> list[str]:
    """With socket.max.fails=0 librdkafka sends a second try by the same connection; both come late."""
    _twice(scene, lambda producer: producer.commit()).abort()
    return ["a"]


@scenario(moves="moved", clients="confluent", kafka_fails=True)
def two_aborts_on_one_connection(scene: Scene) -> list[str]:
    _twice(scene, lambda producer: producer.abort()).commit()
    return ["b", "c"]


@scenario(moves="moved within")
def patient_commit(scene: Scene) -> list[str]:
    """The same client's second try, which isn't late: nothing was cut."""
    producer = scene.producer()
    write(producer, "a")
    late = scene.hold(END_TXN, How.STALL)
    with ThreadPoolExecutor(1) as other:
        ended = other.submit(producer.commit)
        late.wait()
        late.release()
        ended.result(60)
    write(producer, "b")
    producer.abort()
    return ["a"]


# Produce


def _cut_record(scene: Scene) -> tuple[Driver, Held]:
    producer = scene.producer()
    producer.begin()
    late = scene.hold(PRODUCE)
    producer.send("a")
    late.wait()
    producer.notice_cut()
    producer.abort()
    return producer, late


@scenario(RECORDS, moves="moved back frozen after", kafka_fails=True)
def record(scene: Scene) -> list[str]:
    """A record of an aborted transaction comes just before the next one's first."""
    producer, late = _cut_record(scene)
    producer.begin()
    slow = scene.place.holds.hold(PRODUCE, How.STALL, client="producer")
    producer.send("b")
    slow.wait()
    scene.deliver(late)
    slow.release()
    producer.commit()
    return ["b"]


@scenario(RECORDS, moves="moved back")
def early_record(scene: Scene) -> list[str]:
    """It comes before the next transaction has begun."""
    producer, late = _cut_record(scene)
    scene.deliver(late)
    write(producer, "b")
    producer.commit()
    return ["b"]


@scenario(RECORDS, moves="moved back")
def record_amid(scene: Scene) -> list[str]:
    """It comes between the next transaction's records."""
    producer, late = _cut_record(scene)
    write(producer, "b")
    scene.deliver(late)
    producer.send("c")
    producer.flush()
    producer.commit()
    return ["b", "c"]


@scenario(RECORDS, moves="back")
def record_after_an_abort(scene: Scene) -> list[str]:
    """The record after an abort is refused once, and its second try comes late."""
    producer = scene.producer()
    write(producer, "a")
    producer.abort()
    producer.begin()
    late = scene.hold(PRODUCE, skip=1)
    producer.send("b")
    producer.flush()
    scene.place.holds.forget(late)
    producer.commit()
    write(producer, "c")
    if late.has_come:
        scene.deliver(late)
    producer.send("d")
    producer.commit()
    return ["b", "c", "d"]


def _committed_record(scene: Scene, before: int) -> list[str]:
    producer = scene.producer()
    producer.begin()
    late = scene.hold(PRODUCE)
    producer.send("a")
    producer.flush()
    producer.commit()
    producer.begin()
    values = [f"b{number}" for number in range(before)]
    for value in values:
        producer.send(value)
        producer.flush()
    scene.deliver(late)
    for value in ("c", "d"):
        producer.send(value)
        producer.flush()
    producer.commit()
    return ["a", *values, "c", "d"]


@scenario(RECORDS, moves="moved back frozen after")
def committed_record(scene: Scene) -> list[str]:
    """A record of a committed transaction comes when the broker has forgotten its batch."""
    return _committed_record(scene, 8)


@scenario(RECORDS, moves="back", kafka_fails=None)
def committed_record_soon(scene: Scene) -> list[str]:
    """It comes before the next transaction's first record."""
    return _committed_record(scene, 0)


@scenario(RECORDS, kafka_fails=None)
def lost_answer_before_an_abort(scene: Scene) -> list[str]:
    """A record is written, but its client doesn't learn so, and aborts: the next record may have its number.

    A client whose record is refused then aborts that transaction; one that can't go on is replaced.
    """
    producer = scene.producer()
    producer.begin()
    lost = scene.hold(PRODUCE, How.LOSE)
    producer.send("a")
    lost.wait_answered()
    producer.notice_cut()
    producer.abort()
    try:
        write(producer, "b")
        producer.commit()
    except StepFailed:
        try:
            producer.abort()
        except StepFailed:
            scene.new().init()
        return []
    return ["b"]


# TxnOffsetCommit


def _offsets(scene: Scene, producer: Driver, skip: int = 0) -> None:
    producer.begin()
    late = scene.hold(TXN_OFFSET_COMMIT, skip=skip)
    producer.offsets(10)
    came = not scene.place.holds.forget(late)
    producer.commit()
    producer.begin()
    producer.offsets(20)
    if came:
        scene.deliver(late)
    producer.commit()
    scene.offset = 20


@scenario(OFFSETS, moves=_ALL_MOVES, kafka_fails=True)
def offsets(scene: Scene) -> list[str]:
    """A commit of offsets comes after the next transaction's, and before its end."""
    _offsets(scene, scene.producer())
    return []


def _abort_offsets(scene: Scene) -> Driver:
    producer = scene.producer()
    producer.begin()
    producer.offsets(5)
    producer.abort()
    return producer


@scenario(OFFSETS, moves="moved back")
def offsets_refused_after_an_abort(scene: Scene) -> list[str]:
    """The commit after an abort is refused once, and its second try comes late."""
    _offsets(scene, _abort_offsets(scene), skip=1)
    return []


@scenario(OFFSETS, moves="moved within back", kafka_fails=True)
def offsets_after_an_abort(scene: Scene) -> list[str]:
    """The first commit after an abort is answered; the second one comes late."""
    producer = _abort_offsets(scene)
    producer.begin()
    producer.offsets(7)
    producer.commit()
    _offsets(scene, producer)
    return []


@scenario(OFFSETS)
def offsets_in_another_transaction(scene: Scene) -> list[str]:
    """It comes in a transaction that has nothing to do with the group."""
    producer = scene.producer()
    producer.begin()
    late = scene.hold(TXN_OFFSET_COMMIT)
    producer.offsets(10)
    producer.commit()
    producer.begin()
    producer.offsets(20)
    producer.commit()
    write(producer, "a")
    scene.deliver(late)
    producer.commit()
    scene.offset = 20
    return ["a"]


# AddPartitionsToTxn and AddOffsetsToTxn


@scenario(moves="moved within back")
def partitions(scene: Scene) -> list[str]:
    """The first request of a transaction comes when it has ended: it opens no other one."""
    producer = scene.producer()
    producer.begin()
    late = scene.hold(ADD_PARTITIONS_TO_TXN)
    producer.send("a")
    producer.flush()
    producer.commit()
    if not scene.place.holds.forget(late):
        scene.deliver(late)
    scene.idle()
    return ["a"]


@scenario(moves="moved")
def partitions_amid(scene: Scene) -> list[str]:
    """It comes in the middle of the next transaction, which has another partition."""
    producer = scene.producer()
    producer.begin()
    late = scene.hold(ADD_PARTITIONS_TO_TXN)
    producer.send("a", 1)
    producer.flush()
    producer.commit()
    write(producer, "b")
    if not scene.place.holds.forget(late):
        scene.deliver(late)
    producer.send("c")
    producer.commit()
    scene.idle()
    return ["b", "c"]


@scenario(moves="moved within back")
def added_offsets(scene: Scene) -> list[str]:
    """The same with a group."""
    producer = scene.producer()
    producer.begin()
    late = scene.hold(ADD_OFFSETS_TO_TXN)
    producer.offsets(10)
    producer.commit()
    if not scene.place.holds.forget(late):
        scene.deliver(late)
    scene.idle()
    scene.offset = 10
    return []


# Answers that are lost


@scenario(moves="moved within")
def lost_answers(scene: Scene) -> list[str]:
    """Each request of a transaction is done, but its client doesn't learn so."""
    producer = scene.producer()
    for api_key in (ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, END_TXN):
        scene.hold(api_key, How.LOSE)
    write(producer, "a")
    producer.offsets(10)
    producer.commit()
    scene.place.holds.clear()
    lost = scene.hold(END_TXN, How.LOSE)
    write(producer, "b")
    producer.abort()
    scene.place.holds.forget(lost)
    lost = scene.hold(PRODUCE, How.LOSE)
    write(producer, "c")
    producer.commit()
    scene.offset = 10
    return ["a", "c"]


@scenario()
def lost_answer_to_init(scene: Scene) -> list[str]:
    lost = scene.hold(INIT_PRODUCER_ID, How.LOSE)
    producer = scene.producer()
    scene.place.holds.forget(lost)
    write(producer, "a")
    producer.commit()
    return ["a"]
