"""Topics of a real broker against tables that were landed well, and then spoiled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from tests.pipeline.audit.landed import Landing, produce
from tests.support.commands import Outcome, ottla
from tests.support.processes import BrokerProcess

from ottla_client.admin import AlterConfig, ConfigResource
from ottla_client.sync import Admin
from ottla_client.types import TopicPartition
from ottla_pipeline.audit import AuditError, Dead, Runs, Verdict, audit
from ottla_pipeline.landing.tables import Commit, Names

VALUES = [b"value %d" % number for number in range(100)]


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[..., str]) -> str:
    """Two partitions, of 100 records and of none."""
    name = new_topic(2, "audited")
    produce(broker, name, 0, VALUES)
    return name


@pytest.fixture
def landing(broker: BrokerProcess, tmp_path: Path) -> Landing:
    return Landing(broker, tmp_path)


def run(landing: Landing, *args: str) -> Outcome:
    where = ("--table", landing.place, "--format", landing.form)
    return ottla(landing.broker.bootstrap, "pipeline", "audit", *where, *args)


@pytest.mark.parametrize("form", ["delta", "iceberg", "parquet"])
def test_all_is_there_once(broker: BrokerProcess, topic: str, tmp_path: Path, form: str) -> None:
    landing = Landing(broker, tmp_path, form)
    landing.land(topic, 0, 0, 30)
    landing.land(topic, 0, 30, 100)
    produce(broker, topic, 1, [None, b""])
    landing.land(topic, 1, 0, 2)
    found = audit(broker.bootstrap, landing.table)
    assert found.clean
    assert [(each.partition, each.present, each.records) for each in found.partitions] == [
        (0, 100, 100),
        (1, 2, 2),
    ]
    assert {each.checksum for each in found.partitions} == {Verdict.SAME}
    assert not any(each.behind for each in found.partitions)


def test_what_a_person_sees(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 60)
    done = run(landing)
    assert done.code == 0, done.err
    lines = done.out.decode().splitlines()
    assert lines[0].split() == [
        "PARTITION",
        "LOG",
        "RECORDS",
        "PRESENT",
        "MISSING",
        "DOUBLED",
        "BEHIND",
        "CHECKSUM",
    ]
    assert lines[1].split() == [f"{topic}-0", "0", "to", "100", "60", "60", "0", "0", "40", "same"]
    assert lines[2].split() == [f"{topic}-1", "0", "to", "0", "0", "0", "0", "0", "0", "unknown"]
    assert lines[3] == f"{landing.place}: clean, 60 records once each; 40 offsets of the log not landed yet"


def test_what_a_machine_sees(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 100, lambda rows: rows.slice(0, 98))
    done = run(landing, "--json")
    assert done.code == 1
    document = json.loads(done.out)
    first = document["partitions"][0]
    assert (document["clean"], first["missing"], first["missing_ranges"]) == (False, 2, [[98, 100]])
    assert first["short_ranges"] == [[0, 100]]


def test_rows_are_lost(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 50)
    landing.land(topic, 0, 50, 100, lambda rows: rows.slice(1))
    done = run(landing)
    assert done.code == 1
    text = done.out.decode()
    assert f"{topic}-0: missing: offset 50\n" in text
    assert text.endswith(f"{landing.place}: NOT clean, 1 of 2 partitions differ from the log\n")


def test_rows_that_other_programs_removed_are_not_lost(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 50)
    landing.land(topic, 0, 50, 100)
    table = deltalake.DeltaTable(landing.place)
    table.delete("_offset < 10")
    table.update({"_timestamp": "_timestamp"}, predicate="_offset = 20")
    table.optimize.compact()
    table.delete("_offset = 30")
    (found, _) = audit(landing.broker.bootstrap, landing.table).partitions
    assert (list(found.removed), list(found.missing), found.short) == ([(0, 10), (30, 31)], [], [])
    done = run(landing)
    assert done.code == 0, done.err
    lines = done.out.decode().splitlines()
    assert lines[-2].startswith("other programs have removed rows: DELETE in version ")
    assert lines[-1] == f"{landing.place}: clean, 89 records once each, 11 more removed by other programs"
    # What is lost without another program is still missing.
    landing.table.refresh()
    landing.table.commit(Commit(removed=landing.table.data_files()))
    (found, _) = audit(landing.broker.bootstrap, landing.table).partitions
    assert (found.removed.count, found.missing.count) == (11, 89)


def test_rows_of_other_programs_are_no_records(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 100)
    deltalake.write_deltalake(
        landing.place, pa.table({"value": [b"another's"]}), mode="append", schema_mode="merge"
    )
    done = run(landing)
    assert (done.code, done.err) == (0, "")
    text = done.out.decode()
    assert text.endswith("clean, 100 records once each, and 1 row of other programs\n")
    found = audit(landing.broker.bootstrap, landing.table)
    assert (found.foreign, found.to_json()["foreign_rows"]) == (1, 1)


def test_rows_are_doubled(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 50, lambda rows: pa.concat_tables([rows, rows.slice(10, 5)]))
    landing.land(topic, 0, 50, 100, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    done = run(landing)
    assert done.code == 1
    assert f"{topic}-0: more than once: offsets 10 to 14, offset 50\n" in done.out.decode()
    assert audit(landing.broker.bootstrap, landing.table).partitions[0].surplus == 6


def test_a_file_that_no_commit_tells_of(topic: str, landing: Landing) -> None:
    """As when somebody appends to the table by other means: rows twice, and rows of no record."""
    kept: list[pa.Table] = []

    def keep(rows: pa.Table) -> pa.Table:
        kept.append(rows)
        return rows

    landing.land(topic, 0, 0, 100, keep)
    offsets = pa.array([5, 500], pa.int64())
    more = kept[0].slice(0, 2).set_column(2, "_offset", offsets)
    landing.table.commit(Commit(files=[landing.write(more)]))
    (found, _) = audit(landing.broker.bootstrap, landing.table).partitions
    assert (list(found.doubled), list(found.strange)) == ([(5, 6)], [(500, 501)])
    assert not found.clean


def test_what_was_landed_is_not_what_the_log_has(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 40)
    landing.land(topic, 0, 40, 100)
    state = landing.table.state()
    (first, second) = state.ledger.landed[TopicPartition(topic, 0)]
    spoiled = dataclasses.replace(second, total=second.total ^ 1)
    ledger = dataclasses.replace(state.ledger, landed={TopicPartition(topic, 0): (first, spoiled)})
    landing.table._write(Commit(), dataclasses.replace(state, ledger=ledger))
    landing.table.refresh()
    done = run(landing)
    assert done.code == 1
    assert f"{topic}-0: keys or values differ somewhere in: offsets 40 to 99\n" in done.out.decode()
    assert "differs" in done.out.decode()


def test_the_job_began_later(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 30, 90)
    done = run(landing)
    assert done.code == 0
    expected = "30 offsets from before the job began never landed; 10 offsets of the log not landed yet"
    assert done.out.decode().endswith(f"clean, 60 records once each; {expected}\n")
    done = run(landing, "--whole")
    assert done.code == 1
    assert f"{topic}-0: missing: offsets 0 to 29, offsets 90 to 99\n" in done.out.decode()


def test_dead_letters_are_not_missing(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 100, lambda rows: rows.slice(3), dead=3)
    table, servers = landing.table, landing.broker.bootstrap
    assert not audit(servers, table).clean
    found = audit(servers, table, dead=Dead({TopicPartition(topic, 0): Runs.of([(0, 3)])}))
    assert found.clean
    assert (found.partitions[0].present, found.partitions[0].dead) == (97, 3)


def test_retention(topic: str, landing: Landing) -> None:
    """Rows outlive their records in the log; the audit compares the records that remain."""
    landing.land(topic, 0, 0, 50)
    landing.land(topic, 0, 50, 100)
    with Admin(landing.broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 20})
    (found, _) = audit(landing.broker.bootstrap, landing.table).partitions
    assert found.clean
    assert (found.log_start, found.records, found.gone, found.checksum) == (20, 80, 20, Verdict.SAME)


def test_rows_were_removed_and_their_records_too(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 100)
    deltalake.DeltaTable(landing.place).delete("_offset < 10")
    with Admin(landing.broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 20})
    (found, _) = audit(landing.broker.bootstrap, landing.table).partitions
    assert (found.clean, found.short, found.records) == (True, [], 80)


def test_a_topic_that_was_made_again(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 100)
    with Admin(landing.broker.bootstrap) as admin:
        admin.delete_topics([topic])
    from tests.support.topics import create_topic

    create_topic(landing.broker, topic, 2)
    done = run(landing)
    assert done.code == 2
    assert f"topic {topic} was deleted and made again since" in done.err


def test_a_topic_that_is_compacted(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 100)
    with Admin(landing.broker.bootstrap) as admin:
        admin.alter_configs({ConfigResource.topic(topic): [AlterConfig("cleanup.policy", "compact")]})
    assert audit(landing.broker.bootstrap, landing.table).clean


def test_other_names_of_columns(topic: str, landing: Landing) -> None:
    landing.land(topic, 0, 0, 100)
    with pytest.raises(AuditError, match="has no column place, which says where a row comes from"):
        audit(landing.broker.bootstrap, landing.table, names=Names(offset="place"))


def test_nobody_is_there(landing: Landing, topic: str) -> None:
    landing.land(topic, 0, 0, 100)
    done = ottla("127.0.0.1:9", "pipeline", "audit", "--table", landing.place, "--timeout", "1")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("Error: no bootstrap server answered as a broker in time")
