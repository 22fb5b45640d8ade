"""Whole batches as columns: lists of values, keys, timestamps and headers, without Python code per record.

``encode`` makes a batch of columns, and ``decode`` reads columns from a batch. They write and accept the same bytes
as ``ottla_protocol.records.record``, which describes the format and handles single records.
"""

from ottla_protocol.records.columns.decode import RecordColumns as RecordColumns
from ottla_protocol.records.columns.decode import decode_batches as decode_batches
from ottla_protocol.records.columns.decode import decode_columns as decode_columns
from ottla_protocol.records.columns.decode import decode_pieces as decode_pieces
from ottla_protocol.records.columns.encode import encode_columns as encode_columns
