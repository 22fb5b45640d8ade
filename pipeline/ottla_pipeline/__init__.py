"""Topics in Spark and in the lakehouse: ``format("ottla")``, and jobs that land topics in tables exactly once.

Needs the extra ``spark``; the jobs that land in tables need ``lakehouse`` as well.
"""

from __future__ import annotations
