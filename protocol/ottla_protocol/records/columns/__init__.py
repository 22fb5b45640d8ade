"""Whole batches in columns: values, keys, timestamps and headers as lists, without Python's work a record.

``encode`` makes a batch of columns, ``decode`` columns of a batch. What they write and accept is what
``ottla_protocol.records.record`` does, which has the format and handles one record at a time.
"""

from ottla_protocol.records.columns.decode import RecordColumns as RecordColumns
from ottla_protocol.records.columns.decode import decode_batches as decode_batches
from ottla_protocol.records.columns.decode import decode_columns as decode_columns
from ottla_protocol.records.columns.encode import encode_columns as encode_columns
