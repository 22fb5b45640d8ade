"""Lets Spark find ``format("ottla")`` without registration: Spark imports every package whose name begins with pyspark_."""

from ottla_pipeline.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
