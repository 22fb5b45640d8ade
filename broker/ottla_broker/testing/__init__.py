"""A real broker inside a test: :class:`EmbeddedBroker`, and the pytest plugin ``ottla_broker.testing.plugin``.

Names are imported on first use, because pytest imports this package in every session, even without a broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla_broker.testing.embedded import EmbeddedBroker as EmbeddedBroker
    from ottla_broker.testing.embedded import EmbeddedBrokerError as EmbeddedBrokerError

__all__ = ["EmbeddedBroker", "EmbeddedBrokerError"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("ottla_broker.testing.embedded"), name)
    globals()[name] = value
    return value
