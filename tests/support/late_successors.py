"""Scenarios of late requests: instances that take an id over from each other, and requests between brokers."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.late_drivers import Driver, StepFailed
from tests.support.late_frames import END_TXN, INIT_PRODUCER_ID, PRODUCE, WRITE_TXN_MARKERS, Held
from tests.support.late_scene import OFFSETS, RECORDS, Scene, scenario, write

# InitProducerId


def _init(scene: Scene) -> tuple[Driver, Held]:
    producer = scene.new()
    late = scene.hold(INIT_PRODUCER_ID)
    producer.init()
    return producer, late


@scenario(moves="back", kafka_fails=True)
def init_of_a_new_id(scene: Scene) -> list[str]:
    """The first try of a new id's first request comes when its client is idle."""
    producer, late = _init(scene)
    scene.deliver(late)
    scene.warm(producer)
    return []


@scenario(kafka_fails=True)
def init_of_a_new_id_amid(scene: Scene) -> list[str]:
    """It comes in the first transaction."""
    producer, late = _init(scene)
    write(producer, "a")
    producer.offsets(10)
    scene.deliver(late)
    producer.send("b")
    producer.commit()
    scene.offset = 10
    return ["a", "b"]


@scenario(kafka_fails=True)
def init_of_a_new_id_later(scene: Scene) -> list[str]:
    """It comes after the first transaction."""
    producer, late = _init(scene)
    scene.warm(producer)
    scene.idle()
    scene.deliver(late)
    return []


@scenario(moves="back", kafka_fails=True)
def init_of_a_known_id(scene: Scene) -> list[str]:
    """An instance takes over; its first try comes when it is idle."""
    scene.producer()
    producer, late = _init(scene)
    scene.deliver(late)
    scene.warm(producer)
    return []


@scenario(moves="back", kafka_fails=True)
def init_of_a_known_id_amid(scene: Scene) -> list[str]:
    """It comes in the instance's transaction."""
    scene.producer()
    producer, late = _init(scene)
    write(producer, "a")
    scene.deliver(late)
    producer.send("b")
    producer.commit()
    return ["a", "b"]


@scenario(moves="moved", kafka_fails=True)
def commit_after_a_takeover(scene: Scene) -> list[str]:
    """An instance asks for its id again and again while the former transaction ends; later its commit comes late."""
    old = scene.producer()
    write(old, "a")
    new = scene.new()
    new.init()
    write(new, "b")
    late = scene.hold(END_TXN)
    new.commit()
    write(new, "c")
    scene.deliver(late)
    new.send("d")
    new.abort()
    return ["b"]


# Fenced instances


def _zombie(scene: Scene, act: Callable[[Driver], None], *, written: bool = True) -> list[str]:
    """An instance acts (and fails) while its successor's transaction is open. Nothing is wrong with the network."""
    old = scene.producer({"client.id": "zombie"})
    old.begin()
    if written:
        old.send("a")
        old.flush()
    new = scene.new()
    new.init()
    new.begin()
    new.offsets(20)
    values = [f"b{number}" for number in range(4)]
    for value in values:
        new.send(value)
        new.flush()
    failed = False
    try:
        act(old)
    except StepFailed:
        failed = True
    assert failed, "a fenced instance got no error"
    more = [f"c{number}" for number in range(4)]
    for value in more:
        new.send(value)
        new.flush()
    new.commit()
    scene.offset = 20
    return [*values, *more]


def _send(producer: Driver, partition: int = 0) -> None:
    producer.send("x", partition)
    producer.flush()
    producer.commit()


@scenario(RECORDS, moves="moved")
def zombie_writes(scene: Scene) -> list[str]:
    return _zombie(scene, _send)


@scenario()
def zombie_writes_first(scene: Scene) -> list[str]:
    return _zombie(scene, _send, written=False)


@scenario()
def zombie_writes_elsewhere(scene: Scene) -> list[str]:
    return _zombie(scene, lambda old: _send(old, 1))


@scenario(moves="moved")
def zombie_commits(scene: Scene) -> list[str]:
    return _zombie(scene, lambda old: old.commit())


@scenario()
def zombie_aborts(scene: Scene) -> list[str]:
    """An abort of what the takeover has aborted may succeed or not."""

    def act(old: Driver) -> None:
        old.abort()
        write(old, "x")
        old.commit()

    return _zombie(scene, act)


@scenario(OFFSETS, moves="moved")
def zombie_commits_offsets(scene: Scene) -> list[str]:
    def act(old: Driver) -> None:
        old.offsets(1)
        old.commit()

    return _zombie(scene, act)


@scenario(RECORDS, moves="back")
def zombie_wrote_before(scene: Scene) -> list[str]:
    """What it has sent before it was fenced comes in its successor's transaction."""
    old = scene.producer({"client.id": "zombie"})
    old.begin()
    late = scene.hold(PRODUCE, client="zombie")
    old.send("a")
    late.wait()
    new = scene.new()
    new.init()
    for value in ("b", "c"):
        write(new, value) if value == "b" else new.send(value)
    new.flush()
    scene.deliver(late)
    new.send("d")
    new.flush()
    new.commit()
    return ["b", "c", "d"]


# Between brokers


def _markers(scene: Scene, end: Callable[[Driver], None], then: Callable[[Driver], None]) -> None:
    scene.place.lead(2, scene.topic)  # type: ignore[attr-defined]
    producer = scene.producer()
    write(producer, "a")
    late = scene.hold(WRITE_TXN_MARKERS, client="")
    end(producer)
    write(producer, "b")
    scene.deliver(late)
    producer.send("c")
    then(producer)


@scenario(in_cluster=True)
def commit_marker(scene: Scene) -> list[str]:
    """The coordinator's request to a leader comes late, in the middle of the next transaction."""
    _markers(scene, lambda producer: producer.commit(), lambda producer: producer.abort())
    return ["a"]


@scenario(in_cluster=True)
def abort_marker(scene: Scene) -> list[str]:
    _markers(scene, lambda producer: producer.abort(), lambda producer: producer.commit())
    return ["b", "c"]
