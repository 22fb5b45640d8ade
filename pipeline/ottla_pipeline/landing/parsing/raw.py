"""Keeps the value's bytes, in one column, ``value``."""

from __future__ import annotations

import pyarrow as pa

from ottla_pipeline.landing.parsing.base import Parsed

SCHEMA = pa.schema([("value", pa.binary())])


class RawParser:
    """Takes every value; nothing can fail."""

    schema = SCHEMA
    wanted = SCHEMA

    def parse(self, values: pa.Array) -> Parsed:
        """The values, not copied."""
        return Parsed(pa.Table.from_arrays([values], schema=SCHEMA))
