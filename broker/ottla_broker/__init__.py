"""The Ottla broker, which serves Kafka's wire protocol from an on-disk log.

:class:`EmbeddedBroker`, imported on first use, runs one inside a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla_broker.testing import EmbeddedBroker as EmbeddedBroker
    from ottla_broker.testing import EmbeddedBrokerError as EmbeddedBrokerError

__all__ = ["EmbeddedBroker", "EmbeddedBrokerError"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla_broker import testing

    return getattr(testing, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
