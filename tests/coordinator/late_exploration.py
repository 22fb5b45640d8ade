"""Explores the model of :mod:`.late_model`."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple
from unittest.mock import patch

from tests.coordinator.late_model import Rules, Variant, Violation, World

from ottla_broker.log import heard_connections

_FINISH_EACH = 25
"""Of so many states one is followed to the end of the client's transactions, without further faults."""


class Explored(NamedTuple):
    states: int
    depth: int


def explore(rules: Rules, variant: Variant | None = None, most: int = 10**9) -> Explored:
    """Take all steps in all orders. Raises Violation for the shortest way to one, with the steps as notes."""
    variant = variant or Variant()
    with patch.object(heard_connections, "HeardConnections", variant.heard):
        return _explore(World(rules, variant), most)


def _explore(first: World, most: int) -> Explored:
    came_from: dict[object, tuple[object, str] | None] = {first.key(): None}
    queue: deque[tuple[World, object, int]] = deque([(first, first.key(), 0)])
    depth = 0
    while queue:
        world, key, depth = queue.popleft()
        try:
            for name, successor in world.steps():
                reached = successor.key()
                if reached not in came_from:
                    came_from[reached] = (key, name)
                    if len(came_from) % _FINISH_EACH == 0:
                        successor.copy().finish()
                    queue.append((successor, reached, depth + 1))
        except Violation as violation:
            step: object = key
            while (before := came_from[step]) is not None:
                step, name = before
                violation.add_note(name)
            raise
        if len(came_from) >= most:
            break
    return Explored(len(came_from), depth)
