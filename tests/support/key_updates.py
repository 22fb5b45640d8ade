"""A TLS 1.3 client that changes its keys thousands of times (RFC 8446, section 4.6.3).

OpenSSL's own client can't be made to do that from Python, so the records are made here, from the secret in the key log.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_SUITE: Final = "TLS_AES_256_GCM_SHA384"
_HASH: Final = hashlib.sha384
_KEY_BYTES: Final = 32
_HANDSHAKE: Final = 22
_APPLICATION: Final = 23


class KeyUpdatingClient:
    """The sending side of a TLS 1.3 connection after its handshake; what the server sends is for ``tls``."""

    def __init__(self, port: int, context: ssl.SSLContext, keys: Path) -> None:
        """``keys``: a file that isn't there yet, for the secrets of the session."""
        context.keylog_filename = str(keys)
        self.tls = context.wrap_socket(
            socket.create_connection(("127.0.0.1", port), 60), server_hostname="127.0.0.1"
        )
        cipher = self.tls.cipher()
        assert cipher is not None
        assert cipher[0] == _SUITE
        secrets = dict(
            line.split()[::2] for line in keys.read_text().splitlines() if not line.startswith("#")
        )
        self._secret = bytes.fromhex(secrets["CLIENT_TRAFFIC_SECRET_0"])
        self._begin()

    def record(self, data: bytes) -> bytes:
        """A record of application data."""
        return self._record(data, _APPLICATION)

    def key_updates(self, count: int, *, answered: bool = False) -> bytes:
        """Records that each change this side's keys; ``answered``: and ask the server to change its own."""
        made = []
        for _ in range(count):
            made.append(self._record(b"\x18\0\0\x01" + bytes([answered]), _HANDSHAKE))
            self._secret = self._derive(b"traffic upd", len(self._secret))
            self._begin()
        return b"".join(made)

    def send(self, records: bytes) -> None:
        """Send records as they are. Raises OSError when the server has closed the connection."""
        socket.socket.sendall(self.tls, records)

    def close(self) -> None:
        self.tls.close()

    def _begin(self) -> None:
        self._key = AESGCM(self._derive(b"key", _KEY_BYTES))
        self._iv = int.from_bytes(self._derive(b"iv", 12), "big")
        self._sequence = 0

    def _derive(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label without a context; one block is enough."""
        name = b"tls13 " + label
        info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        return hmac.digest(self._secret, info + b"\x01", _HASH)[:size]

    def _record(self, content: bytes, kind: int) -> bytes:
        header = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2, "big")
        nonce = (self._iv ^ self._sequence).to_bytes(12, "big")
        self._sequence += 1
        return header + self._key.encrypt(nonce, content + bytes([kind]), header)
