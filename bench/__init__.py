"""Compares Ottla with Apache Kafka 3.9.1: the same client, the same machine, alternating in one run.

``python -m bench`` runs every measurement; ``--only`` and ``--quick`` run less. Each module under
:mod:`bench.measures` describes its measurement at the top. The demo (``make demo``) is :mod:`bench.demo`.
"""
