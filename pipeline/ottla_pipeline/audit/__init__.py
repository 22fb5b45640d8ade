"""Whether a table has what its topics have: every record once, and none that differs.

``audit`` reads both sides: the log over the wire, as any consumer would; the table's three columns that say where a
row comes from. What each commit of the table says of itself (which offsets, how many records, their checksum) is held
against both. It needs no Spark, and no Java. The judgement itself is in `ottla_pipeline.audit.compare`.
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
