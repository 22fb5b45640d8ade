"""Lets Spark find ``format("ottla")`` without registration: it imports every package whose name begins with pyspark_.

It does so when any Python data source is used, and an import that fails here would break all of them. So if a part of
Ottla is missing, for example in an incomplete archive, this module has no ``DefaultSource``, and logs why.
"""

import logging

try:
    from ottla_pipeline.source import OttlaDataSource as DefaultSource
except ImportError as _error:
    logging.getLogger("ottla_pipeline").warning('format("ottla") is not available: %s', _error)

__all__ = ["DefaultSource"]
