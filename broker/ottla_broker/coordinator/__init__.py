"""Coordinators: state machines whose every change is a record in a partition of an internal topic.

``shard.py`` holds what they share (loading by replay, append then answer, unloading); ``group/`` is the
classic group coordinator on ``__consumer_offsets``.
"""
