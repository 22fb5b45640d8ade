"""Parses values to columns: JSON, CSV, Avro, or the bytes unchanged.

A parser takes the values of many records at once. Arrow does the work where possible, without a Python object per
record. Failing records are searched only when a batch fails.
"""

from __future__ import annotations

from ottla_pipeline.landing.parsing.base import Failure, Parsed, Parser
from ottla_pipeline.landing.parsing.formats import FORMATS, ParserSettings, parser

__all__ = ["FORMATS", "Failure", "Parsed", "Parser", "ParserSettings", "parser"]
