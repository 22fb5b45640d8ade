"""Metrics of landing jobs and of Spark's queries: the text of a scrape, how far behind they are, and who serves it.

What is counted is in ``landing/job_metrics.py`` and ``query_metrics.py``.
"""
