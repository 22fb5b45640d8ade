"""Lets Spark find ``format("ottla")`` without registration: it imports every package whose name begins with pyspark_.

It does so whenever any Python data source is asked for, and an import that fails here would fail all of them. So where
half of Ottla is missing, as in an archive packed without it, there is no ``DefaultSource``, and a line says why.
"""

import logging

try:
    from ottla_pipeline.source import OttlaDataSource as DefaultSource
except ImportError as _error:
    logging.getLogger("ottla_pipeline").warning('format("ottla") is not there: %s', _error)

__all__ = ["DefaultSource"]
