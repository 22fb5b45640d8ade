"""A connection over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_broker.network.connection import Connection

if TYPE_CHECKING:
    from ottla_broker.log.files import FileSlice
    from ottla_broker.network.connection import Owner
    from ottla_broker.network.service import Principal
    from ottla_broker.network.tls_socket import TlsSocket


class TlsConnection(Connection):
    """Owned by its processor, on the loop thread."""

    __slots__ = ("_tls",)

    def __init__(
        self,
        processor: Owner,
        sock: TlsSocket,
        client_host: str,
        connection_id: str,
        listener: str,
        principal: Principal,
    ) -> None:
        super().__init__(processor, sock, client_host, connection_id, listener)
        self._tls = sock
        self.principal = principal

    def start(self) -> None:
        super().start()
        self._read_on_later()

    def _on_readable(self) -> None:
        super()._on_readable()
        self._read_on_later()

    def _read_on_later(self) -> None:
        """Come back for bytes that are decrypted already, which the event loop doesn't report."""
        if self._reading and self._tls.pending:
            self.processor.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._reading and self._tls.pending:
            self._on_readable()

    def _send_file(self, part: FileSlice, count: int) -> int:
        return self._tls.send_file(part.fd, part.position, count)
