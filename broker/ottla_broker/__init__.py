"""The Ottla broker, which serves Kafka's wire protocol from an on-disk log.

:class:`EmbeddedBroker`, imported on first use, runs one inside a test.

Reading order: ``server.py`` builds the parts, starts and stops them in order; ``daemon.py`` runs it as a process,
``cli.py`` is ``ottla broker``. ``access.py`` loads credentials, tokens, ACLs and quotas; ``listeners.py`` has ports,
certificates and logins; ``coordinators.py`` builds the coordinators when they are first needed. ``ephemeral.py`` is a
broker for tests; ``log_cli.py``, ``takeover_cli.py`` and ``repair_cli.py`` are ``ottla log``.

Imports go down: server, metrics, cluster, network and handlers, coordinator and controller, replica, metadata, store
and config, log. Nothing below ``server.py`` reads the clock or draws a random number: ``clock.py`` and a Random are
passed in.

To change

- when certificates are reloaded: ``listeners.py`` ``configs_changed`` → ``network/tls_listeners.py`` ``reload``
- whose turn it is, per client: ``client_queue.py`` ``ClientQueue``; handshakes and logins: ``client_threads.py``
  ``ClientThreads``
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
