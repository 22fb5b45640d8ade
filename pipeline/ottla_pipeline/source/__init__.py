"""Topics as a data source of Spark: ``format("ottla")``.

``datasource`` is what Spark finds; it imports the rest when a query needs it. Reading order: ``names`` and ``options``
(what may be said), ``positions`` and ``resolving`` (start and end), ``offsets``, ``broker``, ``planning``, ``loss``,
``limits``, ``groups``; ``batch`` and ``stream`` put them together.
"""

from .datasource import OttlaDataSource
from .registering import register

__all__ = ["OttlaDataSource", "register"]
