"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677): both sides prove that they know a password, which isn't sent.

::

    client first:  gs2-header "n=" user ",r=" client nonce ["," extensions]     gs2-header: "n," ["a=" user] ","
    server first:  "r=" client nonce, server nonce ",s=" salt ",i=" iterations
    client final:  "c=" gs2-header ",r=" both nonces ",p=" proof
    server final:  "v=" signature, or "e=" error

Salt, proof, signature and the header in ``c=`` are base64. In names, "=2C" stands for a comma and "=3D" for "=". As in
Kafka, names and passwords are UTF-8 without SASLprep, and there is no channel binding.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from .mechanism import DIGESTS, MIN_ITERATIONS, Deferred, SaslError
from .salts import DIGITS, KAFKAS_BITS, SaltForm, SaltForms

_MAX_CLIENT_ITERATIONS: Final = 1_000_000
_MAX_MESSAGE: Final = 16 * 1024
_TOKENS_FORM: Final = SaltForm(26, MIN_ITERATIONS)
"""The salts of delegation tokens: 26 bytes, as in Kafka."""

_NAME: Final = r"(?:[^=,]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rf"(n,(?:a=({_NAME}))?,)(n=({_NAME}),r=([\x21-\x2b\x2d-\x7e]+)(?:,(.*))?)", re.DOTALL
)
_FINAL: Final = re.compile(
    r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=([A-Za-z0-9+/=]+)", re.DOTALL
)
_SERVER_FIRST: Final = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?", re.DOTALL
)
_SERVER_FINAL: Final = re.compile(r"(?:e=([^,]+)|v=([A-Za-z0-9+/=]+))(?:,.*)?", re.DOTALL)


class ScramCredential(NamedTuple):
    """A stored password: salt, iterations and keys."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salt_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password. Takes milliseconds: as many rounds as ``iterations``."""
    return hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)


def credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    digest = DIGESTS[mechanism]
    stored = hashlib.new(digest, hmac.digest(salted_password, b"Client Key", digest)).digest()
    return ScramCredential(salt, stored, hmac.digest(salted_password, b"Server Key", digest), iterations)


def encode_credential(found: ScramCredential) -> str:
    """As in ZooKeeper (``ScramCredentialUtils.credentialToString``)."""
    parts = (("salt", found.salt), ("stored_key", found.stored_key), ("server_key", found.server_key))
    return (
        ",".join(f"{name}={b64encode(value).decode()}" for name, value in parts)
        + f",iterations={found.iterations}"
    )


def decode_credential(text: str) -> ScramCredential:
    """Raises ValueError for a text of another form."""
    fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    try:
        return ScramCredential(
            b64decode(fields["salt"], validate=True),
            b64decode(fields["stored_key"], validate=True),
            b64decode(fields["server_key"], validate=True),
            int(fields["iterations"]),
        )
    except KeyError as missing:
        raise ValueError(f"the credential has no {missing.args[0]}") from None


class ScramClient:
    """See :class:`.mechanism.SaslClient`.

    ``salted`` replaces :func:`salt_password`, so that the caller may remember its results or run it elsewhere.
    """

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        nonce: str,
        salted: Callable[[str, str, bytes, int], bytes] = salt_password,
        *,
        tokenauth: bool = False,
    ) -> None:
        """``nonce`` is random: printable, without commas.

        ``tokenauth``: user and password are a delegation token's id and its HMAC in base64 (KIP-48).
        """
        self.complete = False
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._salted = salted
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{',tokenauth=true' if tokenauth else ''}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        text = _text(challenge)
        if self._signature is None:
            return self._final(text)
        match = _SERVER_FINAL.fullmatch(text)
        if match is None:
            raise SaslError("the server's last SCRAM message is malformed")
        if match[1]:
            raise SaslError(f"the server refuses the SCRAM login: {match[1]}")
        if not hmac.compare_digest(_base64(match[2]), self._signature):
            raise SaslError("the server doesn't know the password: its SCRAM signature is wrong")
        self.complete = True
        return None

    def _final(self, text: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise SaslError("the server's first SCRAM message is malformed")
        nonce, salt, iterations = match[1], _base64(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the server's SCRAM nonce is wrong")
        if not MIN_ITERATIONS <= iterations <= _MAX_CLIENT_ITERATIONS:
            raise SaslError(
                f"the server wants {iterations} SCRAM iterations;"
                f" {MIN_ITERATIONS} to {_MAX_CLIENT_ITERATIONS} are allowed"
            )
        digest = DIGESTS[self._mechanism]
        salted = self._salted(self._mechanism, self._password, salt, iterations)
        found = credential(self._mechanism, salted, salt, iterations)
        bare = f"c={b64encode(b'n,,').decode()},r={nonce}"
        signed = f"{self._bare},{text},{bare}".encode()
        key = hmac.digest(salted, b"Client Key", digest)
        proof = _xor(key, hmac.digest(found.stored_key, signed, digest))
        self._signature = hmac.digest(found.server_key, signed, digest)
        return f"{bare},p={b64encode(proof).decode()}".encode()


class TokenCredential(NamedTuple):
    """A delegation token as a server knows it. ``expires_ms`` is since the epoch."""

    credential: ScramCredential
    owner: str
    expires_ms: int


class ScramServer:
    """See :class:`.mechanism.SaslServer`.

    Unknown users get a salt, too, which is always the same for a name and looks like other users' (:mod:`.salts`), and
    fail at the same step as a wrong password. So do unknown and expired delegation tokens.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        nonce: str,
        secret: bytes,
        find_token: Callable[[str], TokenCredential | None] = lambda _: None,
        forms: SaltForms | None = None,
    ) -> None:
        """``nonce`` is random: printable, without commas. ``secret`` makes the salts of unknown users.

        ``find_token`` finds a delegation token by its id, unless it has expired, or raises Deferred. ``forms`` are
        those of the users' salts.
        """
        self.complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.token_authenticated = False
        self._find_token = find_token
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._secret = secret
        self._forms = forms or SaltForms()
        self._known = False
        self._found: ScramCredential | None = None
        self._signed = ""
        self._header = b""

    def respond(self, message: bytes) -> bytes:
        if self.complete:
            raise SaslError("SCRAM is complete, but the client sent another message")
        if len(message) > _MAX_MESSAGE:
            raise SaslError(f"a SCRAM message has {len(message)} bytes, at most {_MAX_MESSAGE} are allowed")
        return self._final(_text(message)) if self._found is not None else self._first(_text(message))

    def _first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise SaslError("Invalid SASL/SCRAM message: the first one is malformed")
        _, identity, _, name, _, extensions = match.groups()
        self.user = _unescaped(name)
        if identity and _unescaped(identity) != self.user:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        given = self.user
        if extensions and re.search(r"(?:^|,)tokenauth=true(?:,|$)", extensions, re.IGNORECASE):
            self.token_authenticated = True
            try:
                token = self._find_token(given)
            except Deferred as later:
                then = later.then
                raise Deferred(later.work, lambda done: self._by_token(match, then(done))) from None
            return self._by_token(match, token)
        return self._challenge(match, self._find(given), self._forms)

    def _by_token(self, match: re.Match[str], token: TokenCredential | None) -> bytes:
        given, found = self.user, None
        if token is not None:
            found, self.user, self.expires_ms = token
        return self._challenge(match, found, _TOKENS_FORM, given)

    def _challenge(
        self,
        match: re.Match[str],
        found: ScramCredential | None,
        forms: SaltForms | SaltForm,
        given: str = "",
    ) -> bytes:
        header, _, bare, _, nonce, _ = match.groups()
        self._known = found is not None
        # Also for users that are known, so that it takes as long.
        unknown = self._unknown(given or self.user, forms)
        self._found = found or unknown
        self._header = header.encode()
        salt = b64encode(self._found.salt).decode()
        answer = f"r={nonce}{self._nonce},s={salt},i={self._found.iterations}"
        self._nonce = nonce + self._nonce
        self._signed = f"{bare},{answer}"
        return answer.encode()

    def _unknown(self, name: str, forms: SaltForms | SaltForm) -> ScramCredential:
        kind = "token" if self.token_authenticated else "user"
        salt, iterations, made = _pretended(self._secret, f"{self._mechanism} {kind} {name}", forms)
        key = made[: hashlib.new(DIGESTS[self._mechanism]).digest_size]
        return ScramCredential(salt, key, key, iterations)

    def _final(self, text: str) -> bytes:
        assert self._found is not None
        match = _FINAL.fullmatch(text)
        if match is None:
            raise SaslError("Invalid SASL/SCRAM message: the last one is malformed")
        bare, binding, nonce, proof = match.groups()
        if nonce != self._nonce or _base64(binding) != self._header:
            raise SaslError("Invalid SASL/SCRAM message: it does not belong to the first one")
        digest = DIGESTS[self._mechanism]
        signed = f"{self._signed},{bare}".encode()
        signature = hmac.digest(self._found.stored_key, signed, digest)
        given = _base64(proof)
        key = _xor(given, signature) if len(given) == len(signature) else b""
        right = hmac.compare_digest(hashlib.new(digest, key).digest(), self._found.stored_key)
        if not right or not self._known:
            raise SaslError(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism"
                f" {self._mechanism}"
            )
        self.complete = True
        return f"v={b64encode(hmac.digest(self._found.server_key, signed, digest)).decode()}".encode()


def _pretended(secret: bytes, label: str, forms: SaltForms | SaltForm) -> tuple[bytes, int, bytes]:
    """A salt, iterations and a random key, always the same for a label. ``secret`` hides that they are made up."""
    made = hmac.digest(secret, label.encode(), "sha512")
    form = forms if isinstance(forms, SaltForm) else forms.chosen(int.from_bytes(made[:8], "big"))
    if form.length:
        return hashlib.shake_256(made).digest(form.length), form.iterations, made
    number = int.from_bytes(hashlib.shake_256(made).digest(32), "big") % (1 << KAFKAS_BITS)
    digits = []
    while number:
        number, digit = divmod(number, 36)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits)).encode(), form.iterations, made


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SaslError("Invalid SASL/SCRAM message: it is not UTF-8") from None


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise SaslError("Invalid SASL/SCRAM message: a value is not base64") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")
