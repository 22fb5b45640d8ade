"""Share groups whose records are ordered by key: what members get, whatever they do with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinator.share_world import AnyUser, MemoryLog, ShareWorld
from tests.support.depth import examples

from ottla_broker.config.group_configs import ShareSettings
from ottla_broker.coordinator.share import key_reader, key_window
from ottla_broker.coordinator.share.in_flight import Acknowledgement
from ottla_broker.coordinator.share.key_order import KeyOrder
from ottla_broker.coordinator.share.share_partition import lock_numbers
from ottla_broker.coordinator.share.states import TERMINAL, Acknowledge
from ottla_protocol.errors import ErrorCode
from ottla_protocol.records.batch import HEADER_SIZE, BatchHeader, read_header
from ottla_protocol.records.compression import GZIP, decompress

ACCEPT, RELEASE, REJECT = Acknowledge.ACCEPT, Acknowledge.RELEASE, Acknowledge.REJECT
ORDERED = ShareSettings(key_ordered=True, offset_reset="earliest")
LIMIT = 3
MEMBERS = ["m0", "m1", "m2"]
USERS = [AnyUser() for _ in MEMBERS]


def world_of(keys: str, *, size: int = 4, most_locks: int = 2_000, codec: int = 0) -> ShareWorld:
    """A world whose records have these letters as keys, and a dash for none."""
    world = ShareWorld(ORDERED._replace(most_locks=most_locks, most_deliveries=LIMIT))
    each = [None if key == "-" else key.encode() for key in keys]
    for begin in range(0, len(each), size):
        world.log.append(each[begin : begin + size], codec)
    return world


def test_a_key_has_records_with_one_member_at_a_time() -> None:
    world = world_of("aabab-ca")
    assert world.offsets("m0", 2) == [0, 1]
    assert world.offsets("m1") == [2, 4, 5, 6]
    assert world.offsets("m2") == []
    assert world.acknowledge("m0", {0: ACCEPT}) is None
    assert world.offsets("m2") == []
    assert world.acknowledge("m0", {1: ACCEPT}) is None
    assert world.offsets("m2") == [3, 7]


def test_a_released_record_takes_the_later_ones_of_its_key_back() -> None:
    world = world_of("aabaa")
    assert world.offsets("m0") == [0, 1, 2, 3, 4]
    # Accepting 1 doesn't help: it comes after 0, which is delivered again.
    assert world.acknowledge("m0", {0: RELEASE, 1: ACCEPT}) is None
    assert world.held("m0") == [2]
    refused = world.acknowledge("m0", {3: ACCEPT})
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_RECORD_STATE
    found = world.fetch("m1")
    assert found is not None
    # Only the first delivery of the key counts: the member had worked on no other.
    assert [each[:2] + each[3:] for each in found.batches] == [(0, 0, 2), (1, 1, 1), (3, 4, 1)]


def test_records_are_accepted_in_the_order_of_their_key() -> None:
    world = world_of("abaa")
    assert world.offsets("m0") == [0, 1, 2, 3]
    refused = world.acknowledge("m0", {1: ACCEPT, 2: ACCEPT})
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_RECORD_STATE
    assert "offset 0" in str(refused)
    assert world.held("m0") == [0, 1, 2, 3]
    # A record that is rejected doesn't count as processed.
    assert world.acknowledge("m0", {1: ACCEPT, 2: REJECT}) is None
    assert world.acknowledge("m0", {0: ACCEPT, 3: ACCEPT}) is None
    assert world.share.in_flight.start == 4


def test_a_poisonous_record_takes_no_other_with_it() -> None:
    world = world_of("aab")
    for deliveries in range(1, LIMIT + 1):
        found = world.fetch("m0")
        assert found is not None
        assert found.batches[0].deliveries == deliveries
        world.share.release("m0", next(lock_numbers))
        world.clock.run_due()
    # The first was archived, and so was that of another key; the second hasn't counted as delivered.
    found = world.fetch("m0")
    assert found is not None
    assert [(each.first, each.last, each.deliveries) for each in found.batches] == [(1, 1, 1)]


def test_members_share_the_keys() -> None:
    world = world_of("abcdefabcdef")
    world.share.users.update(USERS)
    assert [world.offsets(member) for member in MEMBERS] == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]


def test_renewed_records_keep_blocking() -> None:
    world = world_of("aa")
    assert world.offsets("m0", 1) == [0]
    world.clock.advance(20)
    assert world.acknowledge("m0", {0: Acknowledge.RENEW}) is None
    world.clock.advance(20)
    assert world.offsets("m1") == []
    world.clock.advance(20)
    assert world.offsets("m1") == [0, 1]


def test_compressed_batches_are_decoded_on_a_thread() -> None:
    world = world_of("abab", codec=GZIP)
    woken: list[bool] = []

    class Waiter:
        def finish(self) -> None:
            woken.append(True)

    world.share.waiters.add(Waiter())
    assert world.offsets("m0") == []
    (decode,) = world.on_thread
    decode()
    assert woken
    assert world.offsets("m0", 1) == [0]
    assert world.offsets("m1") == [1, 3]


def test_keys_are_read_in_slices() -> None:
    world = world_of("a" * 300, size=1)
    # A batch counts as ten records: one turn reads some ninety.
    first = world.offsets("m0", 1_000)
    assert 0 < len(first) < 100
    world.clock.run_due()
    assert world.acknowledge("m0", dict.fromkeys(first, ACCEPT)) is None
    assert world.offsets("m0", 1_000) == list(range(len(first), 300))


def test_order_can_be_turned_on_while_records_are_acquired() -> None:
    world = world_of("abaa")
    world.settings = world.settings._replace(key_ordered=False)
    assert world.offsets("m0", 1) == [0]
    world.settings = world.settings._replace(key_ordered=True)
    assert world.offsets("m1") == [1]
    assert world.acknowledge("m0", {0: ACCEPT}) is None
    assert world.offsets("m1") == [2, 3]
    world.settings = world.settings._replace(key_ordered=False)
    assert world.acknowledge("m1", {3: ACCEPT}) is None


def test_what_is_known_follows_the_log() -> None:
    order = KeyOrder(5)
    order.learn([4, 5, 7], [1, 2, 3], 9, [(5, 5)])
    assert order.known_to == 9
    assert order.choose([(5, 20)], 10, 1) == [(6, 8)]
    order.cut(7)
    assert order.known_to == 7
    order.trim(6)
    assert order.choose([(6, 20)], 10, 1) == [(6, 6)]
    order.trim(100)
    assert order.known_to == 100
    order.learn([], [], 103, [])
    assert order.choose([(100, 200)], 10, 1) == [(100, 102)]


steps = st.lists(
    st.tuples(
        st.sampled_from(["fetch", "fetch", "acknowledge", "acknowledge", "kill", "wait", "crash"]),
        st.sampled_from(MEMBERS),
        st.integers(1, 6),
        st.lists(st.sampled_from([0, 1, 1, 1, 2, 3, 4]), min_size=1, max_size=6),
    ),
    max_size=60,
)


@settings(max_examples=examples(40), deadline=None)
@given(st.text("abc-", min_size=1, max_size=30), st.integers(1, 5), st.sampled_from([4, 9, 2_000]), steps)
def test_no_record_is_handed_out_before_those_of_its_key_that_precede_it(
    keys: str, size: int, most_locks: int, actions: list[tuple[str, str, int, list[int]]]
) -> None:
    world = world_of(keys, size=size, most_locks=most_locks)
    world.share.users.update(USERS)
    # What preceded a record of its key when that was handed out.
    finished: set[int] = set()

    def is_done(offset: int) -> bool:
        in_flight = world.share.in_flight
        if offset < in_flight.start:
            return True
        return any(run.first <= offset <= run.last and run.state in TERMINAL for run in in_flight)

    def fetch(member: str, most: int, settle: bool = True) -> list[int]:
        others = {offset for other in MEMBERS if other != member for offset in world.held(other)}
        mine = set(world.held(member))
        got = world.offsets(member, most)
        if settle:
            world.clock.run_due()
        assert len(got) <= most
        for offset in got:
            if keys[offset] == "-":
                continue
            same = [each for each in range(len(keys)) if keys[each] == keys[offset]]
            assert not others & set(same), "two members have records of one key"
            assert not mine & set(same), "a member gets more of a key that it works on"
            assert offset not in finished, "an inversion"
            before = {each for each in same if each < offset and each not in got}
            assert all(map(is_done, before))
            finished.update(before)
        return got

    def accept(member: str, types: dict[int, int]) -> None:
        error = world.acknowledge(member, types)
        assert error is None or error.code is ErrorCode.INVALID_RECORD_STATE

    def some(member: str, number: int, types: list[int]) -> dict[int, int]:
        held = world.held(member)[types[0] % 2 :][:number]
        return {offset: types[at % len(types)] for at, offset in enumerate(held)}

    for action, member, number, types in actions:
        if action == "fetch":
            fetch(member, number)
        elif action == "acknowledge":
            accept(member, some(member, number, types))
        elif action == "crash":
            # Before anything of it is written; other members fetch meanwhile.
            acks = [
                Acknowledgement(offset, offset, [kind])
                for offset, kind in some(member, number, types).items()
            ]
            world.share.acknowledge(member, acks, lambda error: None)
            for other in MEMBERS:
                fetch(other, number, settle=False)
            world.restart()
            world.share.users.update(USERS)
        elif action == "kill":
            world.share.release(member, next(lock_numbers))
        elif action == "wait":
            world.clock.advance(number * 10)
        world.clock.run_due()
    # Whatever happened: each record that is left comes to a member that accepts what it gets.
    for member in MEMBERS[1:]:
        world.share.release(member, next(lock_numbers))
    accept("m0", dict.fromkeys(world.held("m0"), ACCEPT))
    for _ in keys:
        accept("m0", dict.fromkeys(fetch("m0", 6), ACCEPT))
    assert world.share.in_flight.start == len(keys)


def test_keys_of_large_batches_are_known_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_reader, "_AHEAD", 50)
    world = ShareWorld(ORDERED._replace(most_locks=100))
    world.log.append([b"%d" % number for number in range(2_000)])
    done = decoded = 0
    for _ in range(200):
        world.clock.run_due()
        for decode in world.on_thread:
            decode()
            decoded += 1
        world.on_thread.clear()
        got = world.offsets("m0", 1_000)
        done += len(got)
        assert got == list(range(done - len(got), done))
        assert not got or world.acknowledge("m0", dict.fromkeys(got, ACCEPT)) is None
    assert done == 2_000
    assert 10 < decoded < 50


def test_of_a_large_batch_only_the_keys_that_are_wanted_are_decoded() -> None:
    world = world_of("")
    world.log.append([b"%d" % (number % 7) for number in range(3 * key_reader._AHEAD)], GZIP)
    learnt: list[int] = []
    learn = KeyOrder.learn

    assert world.offsets("m0") == []
    (read,) = world.on_thread
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            KeyOrder, "learn", lambda order, *given: (learnt.append(len(given[0])), learn(order, *given))
        )
        read()
    assert learnt == [2_000 + key_reader._AHEAD]
    assert world.offsets("m0", 3) == [0, 1, 2]


@settings(max_examples=examples(25))
@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=200)), min_size=1, max_size=60),
    st.integers(0, 70),
    st.integers(0, 70),
    st.sampled_from([0, GZIP]),
    st.integers(1, 300),
    st.booleans(),
)
def test_a_window_has_the_keys_of_its_offsets(
    keys: list[bytes | None], since: int, length: int, codec: int, piece: int, has_gaps: bool
) -> None:
    log = MemoryLog()
    log.append(keys, codec)
    data = log.read(0, 1 << 20, max_offset=100, min_one=True).read()
    header = read_header(data)
    if has_gaps:
        # A batch whose last records compaction has removed.
        header = header._replace(last_offset_delta=header.last_offset_delta + 3)

    def pieces(batch: memoryview, header: BatchHeader) -> Iterator[bytes]:
        whole = decompress(header.codec, batch[HEADER_SIZE:])
        return (whole[at : at + piece] for at in range(0, len(whole), piece))

    until = since + length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_window, "body_parts", pieces)
        offsets, found = key_window.read_window(data, 0, header, since, until)
    assert offsets == list(range(since, min(until, len(keys))))
    assert found == [hash(key) for key in keys[since:until]]
