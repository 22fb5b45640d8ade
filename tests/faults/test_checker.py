"""The checker on constructed histories: it finds each anomaly, and none in good ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faults.checker import check, resent, stale_answers, summary
from tests.faults.history import Acked, Commit, Got, History, Run, Value


def value(number: int, producer: str = "a") -> Value:
    return Value(producer, number)


def good(count: int = 6) -> History:
    """One partition, an idempotent producer ``a``, two readers, a group of two that was rebalanced once."""
    log = [Got(0, offset, value(offset)) for offset in range(count)]
    half = count // 2
    return History(
        idempotent={"a": True, "b": False},
        sent={("a", 0): count + 1, ("b", 0): 0},
        acked=[Acked(0, got.offset, got.value, 1.0 + got.offset) for got in log],
        group=[Run("m1", 0.0, log[:half]), Run("m2", 10.0, log[half - 1 :])],
        readers=[Run("r1", 0.0, list(log)), Run("r2", 0.0, list(log))],
        commits=[Commit(0, 1, 1.0, 1.1), Commit(0, half - 1, 2.0, 2.1)],
        fetched=[Commit(0, 0, 1.05, 1.2), Commit(0, half - 1, 3.0, 3.1)],
        quiet=[(0.0, 100.0)],
        log={0: list(log)},
    )


def lost(history: History) -> None:
    history.acked.append(Acked(0, 6, value(6), 9.0))


def moved(history: History) -> None:
    history.acked[2] = history.acked[2]._replace(offset=3)


def vanished(history: History) -> None:
    history.readers[0].got.append(Got(0, 6, value(6)))


def differs_between_readers(history: History) -> None:
    history.readers[0].got.append(Got(0, 6, value(6)))
    history.readers[1].got.append(Got(0, 6, value(7)))


def differs_from_the_log(history: History) -> None:
    history.group[0].got[1] = Got(0, 1, value(6))


def doubled(history: History) -> None:
    add(history, Got(0, 6, value(5)))


def disordered(history: History) -> None:
    history.sent["a", 0] = 8
    add(history, Got(0, 6, value(7)), Got(0, 7, value(6)))


def foreign(history: History) -> None:
    add(history, Got(0, 6, value(99)))


def nonsense(history: History) -> None:
    add(history, Got(0, 6, Value.decode(b"\xffnonsense")))


def hole(history: History) -> None:
    add(history, Got(0, 7, value(6)))


def went_back(history: History) -> None:
    history.readers[0].got.append(history.readers[0].got[3])


def skipped(history: History) -> None:
    del history.readers[1].got[2]


def unseen_by_a_reader(history: History) -> None:
    history.readers[1].got.pop()


def unseen_by_the_group(history: History) -> None:
    history.group[1].got.pop()


def told_of_an_older_commit(history: History) -> None:
    history.fetched.append(Commit(0, 1, 2.2, 2.3))


def began_at_an_older_commit(history: History) -> None:
    history.group[1].got.insert(0, history.log[0][1])


def gave_up(history: History) -> None:
    history.complaints.append("fatal")


def add(history: History, *records: Got) -> None:
    """Add a record to the log and to what every consumer read."""
    for places in (history.log[0], history.group[1].got, *(run.got for run in history.readers)):
        places.extend(records)


@pytest.mark.parametrize(
    ("kind", "break_it"),
    [
        ("lost", lost),
        ("moved", moved),
        ("vanished", vanished),
        ("differs", differs_between_readers),
        ("differs", differs_from_the_log),
        ("doubled", doubled),
        ("disordered", disordered),
        ("foreign", foreign),
        ("foreign", nonsense),
        ("hole", hole),
        ("went back", went_back),
        ("skipped", skipped),
        ("unseen", unseen_by_a_reader),
        ("unseen", unseen_by_the_group),
        ("commit went back", told_of_an_older_commit),
        ("commit went back", began_at_an_older_commit),
        ("complaint", gave_up),
    ],
)
def test_each_anomaly_is_found(kind: str, break_it: Callable[[History], None]) -> None:
    history = good()
    break_it(history)
    found = check(history)
    assert kind in {anomaly.kind for anomaly in found}, found
    assert kind in summary(found)


def test_a_good_history_has_none() -> None:
    assert check(good()) == []
    assert check(History()) == []
    assert summary([]) == ""


def test_a_plain_producer_may_send_a_record_twice() -> None:
    history = good()
    history.sent["b", 0] = 3
    add(history, *(Got(0, 6 + n, value(number, "b")) for n, number in enumerate([1, 0, 0, 1, 2, 2])))
    assert check(history) == []


def test_an_acknowledgement_without_an_offset_counts() -> None:
    history = good()
    history.acked[2] = history.acked[2]._replace(offset=-1)
    assert check(history) == []
    lost(history)
    history.acked[-1] = history.acked[-1]._replace(offset=-1)
    assert [anomaly.kind for anomaly in check(history)] == ["lost"]


def test_unacknowledged_records_may_exist_or_not() -> None:
    history = good()
    add(history, Got(0, 6, value(6)))
    assert check(history) == []


def test_a_commit_in_flight_is_no_promise() -> None:
    history = good()
    history.commits.append(Commit(0, 5, 2.5, 10.05))
    assert check(history) == []


def test_a_stale_answer_while_something_is_broken_is_counted() -> None:
    history = good()
    told_of_an_older_commit(history)
    history.quiet = [(0.0, 2.1), (2.3, 100.0)]
    assert check(history) == []
    assert stale_answers(history) == 1


def sent_again_in(history: History, epoch: int) -> None:
    add(history, Got(0, 6, value(5)))
    history.epochs = {(0, offset): (1000, 0) for offset in range(6)} | {(0, 6): (1000, epoch)}


def test_records_resent_in_a_new_epoch_are_counted() -> None:
    history = good()
    sent_again_in(history, 1)
    history.bumped.add("a")
    assert check(history) == []
    assert resent(history) == 1


@pytest.mark.parametrize(("epoch", "bumped"), [(0, True), (1, False)])
def test_a_record_that_is_doubled_in_one_epoch_is_found(epoch: int, bumped: bool) -> None:
    history = good()
    sent_again_in(history, epoch)
    if bumped:
        history.bumped.add("a")
    assert [anomaly.kind for anomaly in check(history)] == ["doubled"]
    assert resent(history) == 0


@given(
    st.lists(st.sampled_from(["send", "unacknowledged", "again", "read", "rebalance", "commit"]), max_size=80)
)
def test_a_correct_broker_causes_no_false_alarm(steps: list[str]) -> None:
    """A model of a correct broker, with clients that die and come back."""
    history = History(idempotent={"a": True, "b": False}, log={0: []}, quiet=[(0, 1000)])
    log, sent = history.log[0], {"a": 0, "b": 0}
    reader, member = Run("r", 0.0), Run("m0", 0.0)
    history.readers.append(reader)
    history.group.append(member)
    position = committed = 0
    for now, step in enumerate([*steps, "read"], 1):
        if step in ("send", "unacknowledged", "again"):
            producer = "b" if step == "again" else "a"
            made = value(sent[producer], producer)
            sent[producer] += 1
            for _ in range(2 if step == "again" else 1):
                log.append(Got(0, len(log), made))
            if step != "unacknowledged":
                history.acked.append(Acked(0, len(log) - 1, made, now))
        elif step == "read":
            reader.got.extend(log[len(reader.got) :])
            member.got.extend(log[position:])
            position = len(log)
        elif step == "rebalance":
            member = Run(f"m{now}", now)
            history.group.append(member)
            position = committed
        else:
            committed = position
            history.commits.append(Commit(0, committed, now, now + 0.5))
            history.fetched.append(Commit(0, committed, now + 0.6, now + 0.7))
    history.sent = {(producer, 0): count for producer, count in sent.items()}
    assert check(history) == []
