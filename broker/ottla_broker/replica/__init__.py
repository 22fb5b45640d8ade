"""Partitions as replicas: leaders and followers, what is committed, and what waits for it."""
