"""Which Delta tables can be read and written, and how their files hold the columns.

Sources: Delta's protocol, "Table Features", "Column Mapping" and "Schema Serialization Format".
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ottla_pipeline.landing.constraints import Check
from ottla_pipeline.landing.errors import LandingError, SchemaRefused
from ottla_pipeline.landing.schema import TIMESTAMP, digits
from ottla_pipeline.landing.tables.layout import FIELD_ID, Layout, PartitionField

BY_DELTALAKE = frozenset(
    {
        *(
            "appendOnly",
            "invariants",
            "checkConstraints",
            "changeDataFeed",
            "columnMapping",
            "deletionVectors",
        ),
        *("timestampNtz", "v2Checkpoint", "generatedColumns"),
    }
)
"""Features of tables that deltalake commits to. Columns that are generated, or identities, are refused by name."""
BY_US = BY_DELTALAKE | {
    *("allowColumnDefaults", "clustering", "domainMetadata", "identityColumns", "inCommitTimestamp"),
    *("typeWidening", "typeWidening-preview", "vacuumProtocolCheck"),
}
"""Features of tables in a local folder that we commit to."""
READ = frozenset(
    {
        *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
        *("typeWidening", "typeWidening-preview"),
    }
)
"""Features of tables whose rows we read."""
_READER, _WRITER = 3, 7
"""The newest versions of the protocol: from these on, features are named."""
_REFUSED = {
    "delta.generationExpression": "GENERATED ALWAYS AS ({})",
    "delta.identity.start": "GENERATED AS IDENTITY",
    "CURRENT_DEFAULT": "DEFAULT {}",
    "__COLLATIONS": "COLLATE {}",
}
"""Keys of a column's metadata, and what it is declared as: only Spark can compute its values."""
_PHYSICAL, _ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
_MODE, _MAX_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
_CHECK = "delta.constraints."
_WIDENING = "delta.enableTypeWidening"
_CHANGES = "delta.typeChanges"
_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}
_SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
Json = dict[str, Any]


@dataclass(frozen=True)
class Definition:
    """A table's definition at a version: its protocol, columns and properties."""

    table: str
    fields: Sequence[Json]
    """Of its schema, as Delta serializes them."""
    partition_by: Sequence[str]
    properties: Mapping[str, str]
    reader: int = 1
    writer: int = 2
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()

    @classmethod
    def of(cls, name: str, table: Any) -> Definition:
        """Of deltalake's table."""
        protocol, metadata = table.protocol(), table.metadata()
        return cls(
            name,
            json.loads(table.schema().to_json())["fields"],
            list(metadata.partition_columns),
            dict(metadata.configuration),
            protocol.min_reader_version,
            protocol.min_writer_version,
            frozenset(protocol.reader_features or ()),
            frozenset(protocol.writer_features or ()),
        )

    @property
    def has_vectors(self) -> bool:
        return "deletionVectors" in self.reader_features

    @property
    def mapped(self) -> bool:
        """Whether columns have physical names."""
        return self.properties.get(_MODE, "none") != "none"

    def physical(self, name: str) -> str:
        """A column's name in files, in statistics and partition values."""
        return next((self._physical(one) for one in self.fields if one["name"] == name), name)

    def logical(self, physical: str) -> str | None:
        """The column that has this name in files."""
        return next((one["name"] for one in self.fields if self._physical(one) == physical), None)

    def has(self, name: str) -> bool:
        return any(one["name"] == name for one in self.fields)

    def _physical(self, field: Json) -> str:
        return str(field["metadata"].get(_PHYSICAL, field["name"])) if self.mapped else str(field["name"])

    def partition_values(self, partition: Mapping[str, str | None]) -> dict[str, str | None]:
        """Partition values as the log has them: in a form of its own for times, which have a ``T`` and no zone here."""
        kinds = {self.physical(one["name"]): one["type"] for one in self.fields}
        forms = {"timestamp": lambda text: text + "Z", "timestamp_ntz": lambda text: text.replace("T", " ")}
        return {
            name: forms[kinds[name]](text)
            if text is not None and kinds[name] in ("timestamp", "timestamp_ntz")
            else text
            for name, text in partition.items()
        }

    def check_read(self) -> None:
        """Raises LandingError if it has a feature by which its files can't be understood."""
        unknown = sorted(self.reader_features - READ)
        if self.reader > _READER or unknown:
            what = f"feature {unknown[0]}" if unknown else f"protocol, reader version {self.reader}"
            raise LandingError(f"{self.table} uses Delta's {what}, which Ottla can't read")
        schema = self.schema()
        for name in self.partition_by:
            if pa.types.is_binary(schema.field(name).type):
                raise LandingError(
                    f"{self.table} is partitioned by {name}, of type BINARY, which Ottla can't read"
                )

    def check_write(self, known: frozenset[str]) -> None:
        """Raises LandingError if files can't be added to it, or replaced in it."""
        self.check_read()
        unknown = sorted(self.writer_features - known)
        if self.writer > _WRITER or unknown:
            what = f"feature {unknown[0]}" if unknown else f"protocol, writer version {self.writer}"
            where = " in an object store" if unknown and unknown[0] in BY_US else ""
            raise LandingError(
                f"{self.table} uses Delta's {what}, which Ottla can't write{where}: drop the feature (ALTER TABLE … "
                "DROP FEATURE), or land in another table"
            )

    def check_rows(self) -> None:
        """Raises SchemaRefused if only Spark can compute what new rows need."""
        for path, field in _all(self.fields):
            for key, text in _REFUSED.items():
                if key in field["metadata"]:
                    declared = text.format(field["metadata"][key])
                    raise SchemaRefused(
                        f"{self.table} has the column {path} {declared}, which only Spark can compute: drop that, or "
                        "land in another table"
                    )

    def checks(self) -> tuple[Check, ...]:
        """What rows have to meet: CHECK constraints, invariants of columns, and lengths of CHAR and VARCHAR."""
        found = [
            Check(f"CHECK constraint {key.removeprefix(_CHECK)}", text)
            for key, text in sorted(self.properties.items())
            if key.startswith(_CHECK)
        ]
        for path, field in _all(self.fields):
            if (text := field["metadata"].get("delta.invariants")) is not None:
                found.append(Check(f"invariant of {path}", _invariant(text)))
        for field in self.fields:
            kind = str(field["metadata"].get("__CHAR_VARCHAR_TYPE_STRING"))
            if sized := re.fullmatch(r"(?:var)?char\((\d+)\)", kind):
                name = "`" + field["name"].replace("`", "``") + "`"
                condition = f"{name} IS NULL OR length({name}) <= {sized[1]}"
                found.append(Check(f"type {kind.upper()} of {field['name']}", condition))
        return tuple(found)

    def schema(self) -> pa.Schema:
        """Its columns as users see them. Raises LandingError for a type that Arrow lacks."""
        return pa.schema([self._field(one, stored=False, ids=False) for one in self.fields])

    def layout(self, *, ids: bool = True) -> Layout:
        """Its columns as files hold them. Without ``ids``, files are read by physical names alone."""
        stored = [self._field(one, stored=True, ids=ids and self.mapped) for one in self.fields]
        parts = tuple(PartitionField(self.physical(name), name) for name in self.partition_by)
        version = json.dumps(
            [self.fields, list(self.partition_by), dict(self.properties), sorted(self.writer_features)],
            sort_keys=True,
        )
        return Layout(self.schema(), pa.schema(stored), parts, version=version, checks=self.checks())

    def to_read(self) -> Layout:
        """The layout by which files are read, the older ones and other programs' too."""
        return self.layout(ids=self.properties.get(_MODE) == "id")

    def widens(self, has: pa.DataType, wanted: pa.DataType) -> bool:
        """Whether a type can become this wider one: Delta's protocol, "Type Widening"."""
        if self.properties.get(_WIDENING) != "true" or "typeWidening" not in self.writer_features:
            return False
        if pa.types.is_decimal(has) and pa.types.is_decimal(wanted):
            more = wanted.scale - has.scale
            return has != wanted and more >= 0 and digits(wanted) >= digits(has)
        return wanted in _WIDER.get(has, ())

    def extended(self, new: pa.Schema) -> tuple[str, dict[str, str]]:
        """The schema with new and wider columns, serialized, and the properties.

        New ones have ids and physical names, also in structs. Wider ones say what they were: Delta's protocol, "Type
        Widening".
        """
        largest = int(self.properties.get(_MAX_ID, "0"))
        numbers = iter(range(largest + 1, largest + 100_000))
        fields = _merged(self.fields, new, numbers if self.mapped else None)
        properties = dict(self.properties)
        if self.mapped:
            properties[_MAX_ID] = str(next(numbers) - 1)
        return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")), properties

    def _field(self, field: Json, *, stored: bool, ids: bool) -> pa.Field:
        metadata = {FIELD_ID: str(field["metadata"][_ID])} if ids and _ID in field["metadata"] else None
        name = self._physical(field) if stored else field["name"]
        kind = self._type(field["type"], field["name"], stored=stored, ids=ids)
        return pa.field(name, kind, bool(field["nullable"]), metadata)

    def _type(self, kind: Any, where: str, *, stored: bool, ids: bool) -> pa.DataType:
        if isinstance(kind, str):
            if kind in _SIMPLE:
                return _SIMPLE[kind]
            if sized := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind):
                return pa.decimal128(int(sized[1]), int(sized[2]))
        elif kind["type"] == "struct":
            return pa.struct([self._field(one, stored=stored, ids=ids) for one in kind["fields"]])
        elif kind["type"] == "array":
            inner = self._type(kind["elementType"], where, stored=stored, ids=ids)
            return pa.list_(pa.field("element", inner, bool(kind["containsNull"])))
        elif kind["type"] == "map":
            key = self._type(kind["keyType"], where, stored=stored, ids=ids)
            value = self._type(kind["valueType"], where, stored=stored, ids=ids)
            return pa.map_(key, pa.field("value", value, bool(kind["valueContainsNull"])))
        raise LandingError(f"{self.table} has the column {where} of type {kind}, which Ottla can't read")


def _all(fields: Sequence[Json], above: str = "") -> Iterator[tuple[str, Json]]:
    """Each field with its path, those of structs too, at any depth."""
    for one in fields:
        path = f"{above}.{one['name']}" if above else one["name"]
        yield path, one
        yield from _within(one["type"], path)


def _within(kind: Any, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(kind, dict):
        yield from _all(kind.get("fields", ()), path)
        for key in ("elementType", "keyType", "valueType"):
            yield from _within(kind.get(key), path)


def _invariant(text: Any) -> str:
    """``{"expression": {"expression": "x > 3"}}``, as text."""
    try:
        return str(json.loads(text)["expression"]["expression"])
    except (KeyError, TypeError, ValueError):
        return str(text)


def _merged(fields: Sequence[Json], new: Iterable[pa.Field], numbers: Iterator[int] | None) -> list[Json]:
    """The fields as ``new`` has those of the same names, and behind them its others."""
    found = {one["name"]: one for one in fields}
    for one in new:
        known = found.get(one.name)
        if known is None:
            found[one.name] = _serialized(one, numbers)
            continue
        changes: list[Json] = list(known["metadata"].get(_CHANGES, ()))
        kind = _merged_type(known["type"], one.type, numbers, changes)
        metadata = known["metadata"] | ({_CHANGES: changes} if changes else {})
        found[one.name] = known | {"type": kind, "metadata": metadata}
    return list(found.values())


def _merged_type(
    kind: Any, wanted: pa.DataType, numbers: Iterator[int] | None, changes: list[Json], path: str = ""
) -> Any:
    """``path``: of the type within the column, as ``changes`` have it."""
    if isinstance(kind, str):
        wider = _serialized_type(wanted, None)
        if kind.replace(" ", "") != wider:
            changes.append({"fromType": kind, "toType": wider} | ({"fieldPath": path} if path else {}))
        return wider
    if kind["type"] == "struct":
        return kind | {"fields": _merged(kind["fields"], wanted, numbers)}
    if kind["type"] == "array":
        within = f"{path}.element" if path else "element"
        inner = _merged_type(kind["elementType"], wanted.value_type, numbers, changes, within)
        return kind | {"elementType": inner}
    return kind


def _serialized(field: pa.Field, numbers: Iterator[int] | None) -> Json:
    """A column as Delta's schema has it, with the next of the numbers as its id."""
    metadata: Json = {}
    if numbers is not None:
        metadata = {_ID: next(numbers), _PHYSICAL: f"col-{uuid.uuid4()}"}
    kind = _serialized_type(field.type, numbers)
    return {"name": field.name, "type": kind, "nullable": True, "metadata": metadata}


def _serialized_type(kind: pa.DataType, numbers: Iterator[int] | None) -> Any:
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_serialized(one, numbers) for one in kind]}
    if pa.types.is_list(kind):
        inner = _serialized_type(kind.value_type, numbers)
        return {"type": "array", "elementType": inner, "containsNull": True}
    if pa.types.is_map(kind):
        key, value = _serialized_type(kind.key_type, numbers), _serialized_type(kind.item_type, numbers)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise SchemaRefused(f"a column can't be of the type {kind}")
