"""Coordinators: state machines that write each change to a partition of an internal topic.

``shard.py`` is the common part (loading by replay, append then answer, unloading); ``group/`` is the classic group
coordinator on ``__consumer_offsets``.
"""
