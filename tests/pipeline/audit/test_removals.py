"""What other programs have removed of Iceberg tables, and what isn't known of it any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.pipeline.audit.landed import Landing, produce
from tests.pipeline.landing.equality_deletes import delete_at, delete_equal
from tests.support.commands import ottla
from tests.support.processes import BrokerProcess

from ottla_pipeline.audit import Audit, audit
from ottla_pipeline.landing import compact
from ottla_pipeline.landing.tables import Commit


class Lake(Landing):
    @property
    def pyiceberg(self) -> Any:
        self.table.refresh()
        return self.table._table  # type: ignore[attr-defined]

    def audited(self) -> tuple[Audit, list[tuple[int, int]], list[tuple[int, int]]]:
        """With what is removed and what is missing of the only partition."""
        found = audit(self.broker.bootstrap, self.table)
        (one,) = found.partitions
        return found, list(one.removed), list(one.missing)

    def command(self, *args: str) -> tuple[int | None, str]:
        place = ("--table", self.place, "--format", "iceberg")
        done = ottla(self.broker.bootstrap, "pipeline", "audit", *place, *args)
        return done.code, done.out.decode()

    def expire(self, *snapshots: int) -> None:
        self.pyiceberg.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()

    def current(self) -> int:
        return int(self.pyiceberg.current_snapshot().snapshot_id)


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[..., str]) -> str:
    name = new_topic(1, "removed")
    produce(broker, name, 0, [b"value %d" % number for number in range(100)])
    return name


@pytest.fixture
def lake(broker: BrokerProcess, topic: str, tmp_path: Path) -> Lake:
    """100 records in two files."""
    lake = Lake(broker, tmp_path, "iceberg")
    lake.land(topic, 0, 0, 50)
    lake.land(topic, 0, 50, 100)
    return lake


def test_files_are_removed_and_rewritten(lake: Lake) -> None:
    lake.pyiceberg.delete("_offset >= 50")
    whole = lake.current()
    lake.pyiceberg.delete("_offset < 10")
    part = lake.current()
    one = lake.pyiceberg.scan("_offset = 20").to_arrow()
    lake.pyiceberg.overwrite(one, "_offset = 20")
    found, removed, missing = lake.audited()
    assert (removed, missing, found.clean) == ([(0, 10), (50, 100)], [], True)
    assert found.removed_by == [f"overwrite in snapshot {part}", f"delete in snapshot {whole}"]
    code, text = lake.command()
    assert (code, text.splitlines()[-2:]) == (
        0,
        [
            f"other programs have removed rows: overwrite in snapshot {part}, delete in snapshot {whole}",
            f"{lake.place}: clean, 40 records once each, 60 more removed by other programs",
        ],
    )


def test_a_table_is_overwritten(lake: Lake) -> None:
    foreign = pa.Table.from_pylist([{"value": b"another's"}], schema=lake.pyiceberg.schema().as_arrow())
    lake.pyiceberg.overwrite(foreign)
    found, removed, missing = lake.audited()
    assert (removed, missing, found.clean, found.foreign) == ([(0, 100)], [], True, 1)


def test_rows_are_deleted_without_their_files(lake: Lake, topic: str) -> None:
    first = lake.pyiceberg.inspect.data_files().column("file_path").to_pylist()[-1]
    delete_at(lake.pyiceberg, first, [0, 1])
    at = lake.current()
    delete_equal(lake.pyiceberg, ["_offset"], [{"_offset": 30}, {"_offset": 60}, {"_offset": 1000}])
    equal = lake.current()
    start = int(lake.table.scan(["_offset"]).read_all().column(0).to_numpy().min()) - 2
    wanted = sorted([(start, start + 2), (30, 31), (60, 61)])
    names = {f"delete in snapshot {one}" for one in (at, equal)}
    for _ in range(2):
        found, removed, missing = lake.audited()
        assert (removed, missing, found.clean) == (wanted, [], True)
        assert set(found.removed_by) == names
        compact(lake.place, "iceberg")
        lake.table.refresh()
    lake.pyiceberg.delete("_offset >= 90")
    _, removed, missing = lake.audited()
    assert (removed, missing) == ([*wanted, (90, 100)], [])


def test_what_no_other_program_removed_is_missing(lake: Lake) -> None:
    lake.pyiceberg.delete("_offset < 10")
    lake.table.refresh()
    lake.table.commit(Commit(removed=lake.table.data_files()))
    found, removed, missing = lake.audited()
    assert (removed, missing, found.clean, found.unknown) == ([(0, 10)], [(10, 100)], False, [])


def test_what_expired_snapshots_did_is_not_known(lake: Lake, topic: str) -> None:
    earlier = [one.snapshot_id for one in lake.pyiceberg.metadata.snapshots]
    lake.pyiceberg.delete("_offset < 10")
    gone = lake.current()
    lake.pyiceberg.delete("_offset >= 95")
    lake.expire(*earlier)
    assert lake.audited()[1:] == ([(0, 10), (95, 100)], []), "the delete's own manifests say what it removed"
    lake.expire(gone)
    found, removed, missing = lake.audited()
    assert (removed, missing, found.clean) == ([(95, 100)], [(0, 10)], False)
    code, text = lake.command()
    assert code == 1
    assert f"{topic}-0: missing: offsets 0 to 9\n" in text
    assert "other programs may have removed more rows, by earlier snapshots, which have expired\n" in text
    assert json.loads(lake.command("--json")[1])["removed_unknown"] == [
        "earlier snapshots, which have expired"
    ]


def test_deletes_of_expired_snapshots_are_known_by_their_files(lake: Lake) -> None:
    delete_equal(lake.pyiceberg, ["_offset"], [{"_offset": 30}])
    expired = [one.snapshot_id for one in lake.pyiceberg.metadata.snapshots]
    lake.pyiceberg.append(
        pa.Table.from_pylist([{"value": b"another's"}], schema=lake.pyiceberg.schema().as_arrow())
    )
    lake.expire(*expired)
    found, removed, missing = lake.audited()
    assert (removed, missing, found.clean, list(found.unknown)) == ([(30, 31)], [], True, [])
    assert found.removed_by == [f"deletes of snapshot {expired[-1]}, which has expired"]


def test_removed_files_that_are_no_longer_there(lake: Lake) -> None:
    before = lake.table.files()
    lake.pyiceberg.delete("_offset >= 50")
    lake.table.refresh()
    for one in {*before} - {*lake.table.files()}:
        Path(one).unlink()
    found, removed, missing = lake.audited()
    assert (removed, missing) == ([], [(50, 100)])
    assert found.unknown == [f"delete in snapshot {lake.current()}, whose files can't be read"]


@pytest.mark.parametrize("damage", ["gone", "no manifest", "forbidden"])
def test_an_old_manifest_that_can_not_be_read(lake: Lake, damage: str) -> None:
    """What can be read of the table's history is said, and what can't be."""
    for condition in ("_offset < 10", "_offset >= 90", "_offset = 50"):
        lake.pyiceberg.delete(condition)
    snapshots = lake.pyiceberg.metadata.snapshots
    path = Path(snapshots[-2].manifest_list.removeprefix("file://"))
    if damage == "no manifest":
        path.write_bytes(path.read_bytes()[:40])
    else:
        path.unlink()
    if damage == "forbidden":
        path.mkdir()
    found, removed, missing = lake.audited()
    assert (removed, missing, found.clean) == ([(0, 10), (50, 51)], [(90, 100)], False)
    lost = f"overwrite in snapshot {snapshots[-2].snapshot_id}, whose manifests can't be read"
    assert found.unknown == [lost]
    code, text = lake.command()
    assert (code, f"other programs may have removed more rows, by {lost}\n" in text) == (1, True)


def test_an_old_commit_of_a_delta_table_that_can_not_be_read(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    delta = Landing(broker, tmp_path, "delta")
    delta.land(topic, 0, 0, 99)
    for condition in ("_offset < 10", "_offset >= 90", "_offset = 50"):
        deltalake.DeltaTable(delta.place).delete(condition)
    version = deltalake.DeltaTable(delta.place).version()
    delta.table.refresh()
    delta.land(topic, 0, 99, 100)
    deltalake.DeltaTable(delta.place).create_checkpoint()
    path = Path(delta.place) / "_delta_log" / f"{version - 1:020d}.json"
    path.write_text("{")
    delta.table.refresh()
    (one,) = (found := audit(broker.bootstrap, delta.table)).partitions
    assert (list(one.removed), list(one.missing)) == ([(0, 10), (50, 51)], [(90, 99)])
    assert found.unknown == [f"version {version - 1}, which can't be read"]
