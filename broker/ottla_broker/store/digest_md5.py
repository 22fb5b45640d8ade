"""SASL's mechanism DIGEST-MD5 (RFC 2831), the client's side, as ZooKeeper asks for it.

The server sends a challenge, ``realm="zk-sasl-md5",nonce="…",qop="auth",charset=utf-8,algorithm=md5-sess``; the client
answers with a digest of the password, both nonces and the realm. The server's last message, ``rspauth=…``, proves that
it knows the password, too. MD5 is all that the mechanism has, so use it over TLS.
"""

from __future__ import annotations

import re
from hashlib import md5
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hashlib import _Hash as HASH

ZOOKEEPER: Final = "zk-sasl-md5"
"""The host that clients of ZooKeeper name, whatever the server's is."""

_FIELD: Final = re.compile(r'([a-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^",]*))(?:,\s*|$)')
_MOST_BYTES: Final = 2048
"""RFC 2831's limit of a challenge."""


class DigestError(Exception):
    """The server's message makes no sense, or it doesn't know the password."""


class DigestMd5:
    """One login: :meth:`respond` to the challenge, then :meth:`check` the server's last message."""

    def __init__(self, user: str, password: str, nonce: str, uri: str = f"zookeeper/{ZOOKEEPER}") -> None:
        """``nonce``: the client's own, which nobody can guess."""
        self._user = user
        self._password = password
        self._nonce = nonce
        self._uri = uri
        self._proof = ""

    def respond(self, challenge: bytes) -> bytes:
        """The answer to the server's challenge. Raises DigestError."""
        fields = _fields(challenge)
        nonce, realm = fields.get("nonce"), fields.get("realm", "")
        if not nonce or fields.get("algorithm") != "md5-sess":
            raise DigestError("the challenge isn't one of DIGEST-MD5")
        if "auth" not in fields.get("qop", "auth").split(","):
            raise DigestError("the server wants more than authentication")
        self._proof = self._digest(nonce, realm, "")
        return (
            f'charset=utf-8,username="{_quoted(self._user)}",realm="{_quoted(realm)}",nonce="{_quoted(nonce)}",'
            f'nc=00000001,cnonce="{self._nonce}",digest-uri="{self._uri}",maxbuf=65536,'
            f"response={self._digest(nonce, realm, 'AUTHENTICATE')},qop=auth"
        ).encode()

    def check(self, last: bytes) -> None:
        """Raises DigestError unless the server knows the password."""
        proof = _fields(last).get("rspauth", "")
        if not self._proof or not compare_digest(proof.encode(), self._proof.encode()):
            raise DigestError("the server doesn't know the password")

    def _digest(self, nonce: str, realm: str, method: str) -> str:
        secret = _md5(b":".join(map(_encoded, (self._user, realm, self._password)))).digest()
        first = _md5(secret + f":{nonce}:{self._nonce}".encode()).hexdigest()
        second = _md5(f"{method}:{self._uri}".encode()).hexdigest()
        return _md5(f"{first}:{nonce}:00000001:{self._nonce}:auth:{second}".encode()).hexdigest()


def _md5(data: bytes) -> HASH:
    return md5(data, usedforsecurity=False)


def _encoded(text: str) -> bytes:
    """As the mechanism digests a text: in ISO 8859-1 where that has all of its characters."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _fields(message: bytes) -> dict[str, str]:
    """Raises DigestError."""
    if len(message) > _MOST_BYTES:
        raise DigestError("the server's message is too long")
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise DigestError("the server's message isn't text") from error
    fields: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _FIELD.match(text, at)
        if found is None:
            raise DigestError("the server's message can't be parsed")
        name, quoted, plain = found.groups()
        fields.setdefault(name, plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    return fields
