"""Ottla beside Apache Kafka 3.9.1: same client, same machine, in turn in one run.

``python -m bench`` runs every measurement; ``--only`` and ``--quick`` narrow it. What each measures stands at
the top of its module under :mod:`bench.measures`. The demo (``make demo``) is :mod:`bench.demo`.
"""
