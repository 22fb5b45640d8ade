"""Ranges of offsets as Arrow record batches: over the wire from any broker, or straight from segment files.

Importing this imports neither numpy nor pyarrow; reading does.

To change

- how a range of offsets is read: ``reading/wire.py``, ``reading/segments.py``; a record to a row without a job:
  ``reading/decoder.py``
"""

from __future__ import annotations

from .checksum import Checksum as Checksum
from .errors import CorruptBatch as CorruptBatch
from .errors import CorruptData as CorruptData
from .errors import DataLoss as DataLoss
from .errors import LossKind as LossKind
from .errors import ReadError as ReadError
from .ranges import COLUMNS as COLUMNS
from .ranges import HEADERS as HEADERS
from .ranges import OffsetRange as OffsetRange
from .ranges import ReadSettings as ReadSettings
from .ranges import SegmentPlace as SegmentPlace
from .reader import read as read
