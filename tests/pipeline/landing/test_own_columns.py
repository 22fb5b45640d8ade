"""Ottla's own columns, when another program renames or drops them: they are known by id and physical name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from tests.pipeline.landing.rounds import produce, run
from tests.support.processes import BrokerProcess

from ottla_pipeline.audit import AuditError, audit
from ottla_pipeline.landing import Landing, compact, replay
from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.tables import Names

NEW = {"_topic": "t", "_topic_partition": "part", "_offset": "off", "_timestamp": "written", "_key": "k"}
Change = Callable[[Landing, str, str | None], None]


def in_iceberg(job: Landing, old: str, new: str | None) -> None:
    table: Any = table_of(job)
    table.refresh()
    with table._table.update_schema() as update:
        if new is None:
            update.delete_column(old)
        else:
            update.rename_column(old, new)


def in_delta(job: Landing, old: str, new: str | None) -> None:
    """As Spark does it, which first gives every column the physical name that it has."""
    table = deltalake.DeltaTable(job.table)
    log = Path(job.table) / "_delta_log"
    (metadata,) = [
        action["metaData"]
        for path in sorted(log.glob("*.json"))
        for action in map(json.loads, path.read_text().splitlines())
        if "metaData" in action
    ][-1:]
    schema = json.loads(metadata["schemaString"])
    kept = []
    for at, field in enumerate(schema["fields"]):
        known = {"delta.columnMapping.id": at + 1, "delta.columnMapping.physicalName": field["name"]}
        field["metadata"] = {**known, **field["metadata"]}
        if field["name"] == old:
            if new is None:
                continue
            field["name"] = new
        kept.append(field)
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "99"}
    actions = [
        {"commitInfo": {"operation": "RENAME COLUMN", "timestamp": 0}},
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": metadata
            | {"schemaString": json.dumps(schema | {"fields": kept}), "configuration": properties}
        },
    ]
    path = log / f"{table.version() + 1:020d}.json"
    path.write_text("\n".join(map(json.dumps, actions)))


def in_mapped_delta(job: Landing, old: str, new: str | None) -> None:
    """As Spark does it where the table was created with column mapping: physical names say nothing."""
    actions = [json.loads(line) for line in _newest_with_metadata(job).splitlines()]
    (metadata,) = [one["metaData"] for one in actions if "metaData" in one]
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = [one for one in schema["fields"] if one["name"] != old or new is not None]
    for one in schema["fields"]:
        one["name"] = new if one["name"] == old else one["name"]
    _commit(job, [{"metaData": metadata | {"schemaString": json.dumps(schema)}}])


def mapped(job: Landing) -> None:
    """An empty table with random physical names, as the job's schema and Ottla's columns are."""
    kinds = ("integer", "string", "integer", "long", "timestamp", "binary")
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {"delta.columnMapping.id": at, "delta.columnMapping.physicalName": f"col-{at}"},
        }
        for at, (name, kind) in enumerate(zip(("a", *NEW), kinds, strict=True))
    ]
    (Path(job.table) / "_delta_log").mkdir(parents=True)
    metadata = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "99"},
    }
    _commit(job, [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata}])


def _newest_with_metadata(job: Landing) -> str:
    texts = [path.read_text() for path in sorted((Path(job.table) / "_delta_log").glob("*.json"))]
    return [one for one in texts if '"metaData"' in one][-1]


def _commit(job: Landing, actions: list[dict[str, Any]]) -> None:
    log = Path(job.table) / "_delta_log"
    version = len(list(log.glob("*.json")))
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


@pytest.fixture(params=["delta", "iceberg", "mapped delta"])
def changed(
    request: pytest.FixtureRequest, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> tuple[Landing, Change]:
    """A table with two rows and a dead letter, and how another program changes it."""
    topic = new_topic(1, prefix="own")
    iceberg = request.param == "iceberg"
    folder = tmp_path / "lake/default." if iceberg else tmp_path / "lake-"
    job = Landing(
        broker.bootstrap,
        f"{folder}t",
        (topic,),
        format="iceberg" if iceberg else "delta",
        values="json",
        schema="a INT",
        dead_letters=f"table:{folder}d",
        names=Names(key="_key"),
    )
    if request.param == "mapped delta":
        mapped(job)
    produce(job.bootstrap_servers, topic, [{"a": 1}, b"no JSON"])
    run(job)
    produce(job.bootstrap_servers, topic, [{"a": 2}])
    run(job)
    changes = {"iceberg": in_iceberg, "delta": in_delta, "mapped delta": in_mapped_delta}
    return job, changes[request.param]


def test_a_renamed_column_of_our_own_is_written_and_audited_by_its_new_name(
    changed: tuple[Landing, Change],
) -> None:
    job, change = changed
    for old, new in NEW.items():
        change(job, old, new)
    produce(job.bootstrap_servers, job.topics[0], [{"a": 3}])
    run(job)
    assert replay(replace(job, values="raw", schema=None)).failed == 0
    compact(job.table, job.format)
    table = table_of(job)
    table.refresh()
    assert sorted(table.schema().names) == sorted(["a", "value", *NEW.values()])
    found = sorted(table.scan().read_all().to_pylist(), key=lambda row: row["off"])
    assert [(row["off"], row["part"], row["a"]) for row in found] == [
        (0, 0, 1),
        (1, 0, None),
        (2, 0, 2),
        (3, 0, 3),
    ]
    for names in (Names(), Names(offset="off")):
        (report,) = audit(job.bootstrap_servers, table, names=names).partitions
        assert (report.present, report.clean) == (4, True)


def test_a_dropped_column_of_our_own_is_not_added_again(changed: tuple[Landing, Change]) -> None:
    job, change = changed
    change(job, "_offset", None)
    produce(job.bootstrap_servers, job.topics[0], [{"a": 3}])
    for work in (run, replay):
        with pytest.raises(LandingError, match=r"no column _offset any more.*--column offset=NAME"):
            work(job)
    with pytest.raises(AuditError, match="no column _offset"):
        audit(job.bootstrap_servers, table_of(job))
