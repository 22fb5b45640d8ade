"""The TLS of all listeners, and its reload when certificates change.

Owned by the loop thread. Imported only where a listener uses TLS, because it loads OpenSSL.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

from ottla_broker.client_threads import ClientThreads
from ottla_broker.config import BrokerConfig
from ottla_broker.config.broker import key_of
from ottla_broker.config.model import HIDDEN, InvalidValue
from ottla_broker.events import get_logger
from ottla_broker.network.tls_handshake import TlsListener
from ottla_broker.network.tls_settings import TlsContexts, TlsError, TlsSettings

_log = get_logger()

Stamp = tuple[object, ...]


class TlsListeners:
    """Makes the contexts of the listeners with TLS, and of connections to other brokers over them.

    Attributes:
        threads: those of handshakes and logins.
    """

    def __init__(self, config: BrokerConfig) -> None:
        """Raises TlsError: a setting or a file can't be used."""
        self._config = config
        self.threads = ClientThreads()
        self._contexts: list[TlsContexts] = []
        self._stamps: dict[str, Stamp] = {}
        self.by_listener = {
            endpoint.name: TlsListener(self._made(endpoint.name, TlsSettings.server), self.threads)
            for endpoint in config.endpoints
            if endpoint.uses_tls
        }
        config.reconfigurable.append(self._check)

    def client_context(self, listener: str) -> Callable[[], ssl.SSLContext]:
        """The context in force for connections to other brokers. Raises TlsError."""
        contexts = self._made(listener, TlsSettings.client)
        return lambda: contexts.context

    def _made(self, listener: str, make: Callable[[TlsSettings], ssl.SSLContext]) -> TlsContexts:
        settings = TlsSettings.of(self._config, listener)
        self._stamps[listener] = _stamp(settings)
        made = TlsContexts(settings, make)
        self._contexts.append(made)
        return made

    def _check(self, settings: Mapping[str, str]) -> None:
        for contexts in self._contexts:
            try:
                contexts.check(TlsSettings.of(self._config, contexts.settings.listener, settings))
            except TlsError as error:
                key = key_of(error.key)
                shown = HIDDEN if key is not None and key.sensitive else settings.get(error.key)
                raise InvalidValue(error.key, shown, error.reason) from error

    def reload(self) -> None:
        """Use changed settings and files for connections that begin from now on; called when configs have changed."""
        changed = set()
        for contexts in self._contexts:
            listener = contexts.settings.listener
            settings = TlsSettings.of(self._config, listener)
            if settings == contexts.settings and _stamp(settings) == self._stamps[listener]:
                continue
            changed.add(listener)
            try:
                contexts.reload(settings)
            except TlsError as error:
                _log.error("certificates not reloaded, the old ones stay", reason=str(error))
                continue
            _log.info("certificates reloaded", listener=listener)
        for listener in changed:
            self._stamps[listener] = _stamp(TlsSettings.of(self._config, listener))

    def close(self) -> None:
        """End the threads."""
        self.threads.close()


def _stamp(settings: TlsSettings) -> Stamp:
    """Return a value that changes when one of the files does."""
    return tuple(map(_stamp_of, (settings.keystore_location, settings.truststore_location)))


def _stamp_of(location: str | None) -> Stamp:
    if location is None:
        return ()
    try:
        found = Path(location).stat()
    except OSError:
        # A change as well: loading the file then fails, and that is logged.
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
