"""Values to columns: JSON, CSV, Avro, or the bytes as they are.

A parser takes the values of many records at once. Whatever can be is done by Arrow without a Python object a record;
records that fail are looked for only when a batch of them does.
"""

from __future__ import annotations

from ottla_pipeline.landing.parsing.base import Failure, Parsed, Parser
from ottla_pipeline.landing.parsing.formats import FORMATS, ParserSettings, parser

__all__ = ["FORMATS", "Failure", "Parsed", "Parser", "ParserSettings", "parser"]
