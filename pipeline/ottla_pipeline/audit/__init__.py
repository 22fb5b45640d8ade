"""Checks that a table has every record of its topics once, unchanged.

``audit`` reads both sides: the log over the wire, like any consumer, and the table's three columns that say where a row
comes from. It compares both with the table's commits: their offsets, numbers of records, and checksums. It needs
neither Spark nor Java. `ottla_pipeline.audit.compare` has the comparison itself.

To change

- which rows other programs have removed: ``audit/run.py`` ``removed`` → ``landing/tables/base.py`` ``removals``:
  Delta's log, or ``landing/tables/iceberg_removals.py`` ``steps``
"""

from __future__ import annotations

from .compare import PartitionAudit as PartitionAudit
from .compare import Verdict as Verdict
from .dead import Dead as Dead
from .dead import in_table as in_table
from .dead import in_topic as in_topic
from .run import Audit as Audit
from .run import AuditError as AuditError
from .run import audit as audit
from .runs import Runs as Runs
