"""Topics as a data source of Spark: ``format("ottla")``.

Spark finds ``datasource``, which imports the rest when a query needs it. Reading order: ``names`` and ``options``,
``positions`` and ``resolving`` (start and end), ``offsets``, ``cluster_queries``, ``planner`` (how far a batch goes)
and ``planning`` (its ranges), ``loss``, ``groups``; ``batch`` and ``stream`` put them together.

To change

- what a Spark option means: ``source/names.py``, ``source/options.py``; writing: ``writing/options.py``
- how a batch is split by bytes: ``source/planning.py`` ``split``
"""

from .datasource import OttlaDataSource
from .registering import register

__all__ = ["OttlaDataSource", "register"]
