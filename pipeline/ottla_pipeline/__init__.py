"""Topics in Spark and in the lakehouse: ``format("ottla")``, and jobs that land topics in tables exactly once.

Needs the extra ``spark``; the jobs that land in tables need ``lakehouse`` as well.

To change

- what a landing job or a query serves as metrics: ``landing/job_metrics.py`` ``JobMetrics``, ``query_metrics.py``
  ``QueryMetrics``; how far they are behind: ``metrics/lag.py`` ``LagProbe``
- the groups that a query's offsets are committed to: ``listener.py``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .source.registering import register as register


def __getattr__(name: str) -> Any:
    """``register``, imported when it is used: jobs without Spark don't need PySpark."""
    if name != "register":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .source.registering import register

    return register
