"""Partitions as replicas: who leads, how far a partition is committed, and who waits for it."""
