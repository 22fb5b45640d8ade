"""Chooses a job's parser and its schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ottla_pipeline.landing.errors import BadSetting, SchemaRefused
from ottla_pipeline.landing.jsonschema import from_json_schema
from ottla_pipeline.landing.parsing import csv
from ottla_pipeline.landing.parsing import json as json_values
from ottla_pipeline.landing.parsing.avro import AvroParser, check_avro
from ottla_pipeline.landing.parsing.base import Parser
from ottla_pipeline.landing.parsing.csv import CsvParser
from ottla_pipeline.landing.parsing.json import JsonParser
from ottla_pipeline.landing.parsing.raw import SCHEMA, RawParser
from ottla_pipeline.landing.schema import from_ddl

FORMATS = ("raw", "json", "csv", "avro")


@dataclass(frozen=True)
class ParserSettings:
    """Settings of a parser. Small and picklable: they travel to every task."""

    values: str
    schema: str
    """The columns: base64 of Arrow's own form (json, csv), or the Avro schema's text."""
    delimiter: str = ","
    confluent: bool = False
    grow: bool = False
    reserved: tuple[str, ...] = ()
    """Ottla's own columns, of which no new one may have the name."""
    schema_ids: tuple[int, ...] = ()
    """The ids of the Avro schema, in Confluent's framing."""


def parser(settings: ParserSettings) -> Parser:
    makers: dict[str, Callable[[], Parser]] = {
        "raw": RawParser,
        "json": lambda: JsonParser(unpacked(settings.schema), grow=settings.grow, reserved=settings.reserved),
        "csv": lambda: CsvParser(unpacked(settings.schema), settings.delimiter),
        "avro": lambda: AvroParser(settings.schema, settings.schema_ids if settings.confluent else None),
    }
    return makers[settings.values]()


def settings(
    values: str,
    schema: str | None,
    sample: Callable[[], pa.Array],
    *,
    known: pa.Schema | None = None,
    delimiter: str = ",",
    confluent: bool = False,
    schema_ids: Sequence[int] = (),
    reserved: Sequence[str] = (),
) -> ParserSettings:
    """Settings from the user's schema: DDL, a JSON Schema or an Avro schema, as text or as a file's name.

    Without a schema, it is the table's (``known``), or inferred from ``sample()`` for a new table. Raises SchemaRefused
    if it can't be read, or doesn't fit the format of the values.
    """
    if values == "raw":
        if schema is not None:
            raise BadSetting("raw values have no schema: leave it out, or say values=json, csv or avro")
        return ParserSettings("raw", "")
    text = None if schema is None else _text(schema)
    document = None if text is None else _document(text)
    if values == "avro":
        if document is None:
            raise SchemaRefused("Avro values need an Avro schema, as JSON or as the name of a file")
        check_avro(document)
        return ParserSettings("avro", json.dumps(document), confluent=confluent, schema_ids=tuple(schema_ids))
    if text is not None:
        columns = from_ddl(text) if document is None else _of_json(document)
    elif known is not None:
        columns = known
    else:
        columns = csv.infer(sample(), delimiter) if values == "csv" else json_values.infer(sample(), reserved)
    grow = values == "json" and text is None
    made = ParserSettings(values, packed(columns), delimiter, grow=grow, reserved=tuple(reserved))
    parser(made)  # Refuses columns that the format can't have.
    return made


def check(values: str, schema: str, *, delimiter: str = ",", confluent: bool = False) -> None:
    """Raise SchemaRefused if values of this format can't be read by the schema."""
    settings(values, schema, lambda: pa.array([]), delimiter=delimiter, confluent=confluent)


def columns(chosen: ParserSettings) -> pa.Schema:
    return SCHEMA if chosen.values == "raw" else parser(chosen).schema


def packed(schema: pa.Schema) -> str:
    """A schema in Arrow's own form, as base64 text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def unpacked(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _text(schema: str) -> str:
    """The schema's text: the given text, or the content of the named file."""
    if schema.lstrip()[:1] in ("{", "[") or " " in schema.strip():
        return schema
    path = Path(schema)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SchemaRefused(f"the schema's file {schema!r} can't be read: {error}") from error
    raise SchemaRefused(f"the schema {schema!r} is neither columns with types nor a file")


def _document(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (RecursionError, ValueError) as error:
        raise SchemaRefused(f"the schema is no JSON: {error}") from error


def _of_json(document: Any) -> pa.Schema:
    if isinstance(document, dict) and document.get("type") == "record":
        raise SchemaRefused(
            "this is an Avro schema: say values=avro, or give columns with types or a JSON Schema"
        )
    if not isinstance(document, dict):
        raise SchemaRefused("a JSON Schema of an object is needed")
    return from_json_schema(document)
