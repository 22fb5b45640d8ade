"""A connection over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ottla_broker.network.connection import Connection
from ottla_broker.network.reader import Reader

if TYPE_CHECKING:
    from ottla_broker.network.owner import Owner
    from ottla_broker.network.service import Principal
    from ottla_broker.network.tls_socket import TlsSocket


class TlsReader(Reader):
    """Comes back for bytes that are decrypted already, which the event loop doesn't report."""

    __slots__ = ()

    def start(self) -> None:
        super().start()
        self._read_on_later()

    def on_readable(self) -> None:
        super().on_readable()
        self._read_on_later()

    @property
    def _has_more(self) -> bool:
        return self.reading and cast("TlsSocket", self._sock).pending

    def _read_on_later(self) -> None:
        if self._has_more:
            self._processor.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._has_more:
            self.on_readable()


class TlsConnection(Connection):
    """Owned by its processor, on the loop thread."""

    __slots__ = ()

    def __init__(
        self,
        processor: Owner,
        sock: TlsSocket,
        client_host: str,
        connection_id: str,
        listener: str,
        principal: Principal,
    ) -> None:
        super().__init__(processor, sock, client_host, connection_id, listener, sock.send_file, TlsReader)
        self.principal = principal
