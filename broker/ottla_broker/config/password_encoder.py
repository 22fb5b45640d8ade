"""Encrypts passwords that are set at runtime, as Kafka's ``EncryptingPasswordEncoder`` stores them.

::

    name:value pairs with commas between them, in any order; bytes are in base64:
    keyFactoryAlgorithm       PBKDF2WithHmacSHA512, …: makes the key of the secret, salt and iterations
    cipherAlgorithm           AES/CBC/PKCS5Padding or AES/GCM/NoPadding
    keyLength, iterations     in bits; a number
    salt, initializationVector, encryptedPassword
    passwordLength            in UTF-16 units
    authenticationTagLength   in bits, with GCM alone; the tag is the end of encryptedPassword

Call these functions in a thread: deriving a key takes milliseconds.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.config.password_keys import CBC, GCM, KEY_BITS, KEY_FACTORIES, MOST_ITERATIONS

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.config.broker import BrokerConfig

_SALT_BYTES: Final = 256
_CBC_IV_BYTES: Final = 16
_GCM_IV_BYTES: Final = 12
_TAG_BITS: Final = 128


class PasswordError(ValueError):
    """A password can't be encrypted or decrypted. The message says why, without the password."""


class PasswordEncoder:
    """Encrypts with ``password.encoder.secret``, and decrypts also what the old secret has encrypted."""

    def __init__(self, config: BrokerConfig, random: Random) -> None:
        """Raises PasswordError: there is no secret, or the package cryptography is missing."""
        secret = config.password_encoder_secret
        if not secret:
            raise PasswordError(
                "password.encoder.secret is not set, and passwords are stored only if it encrypts them: set it in"
                " the broker's configuration"
            )
        try:
            import cryptography  # noqa: F401
        except ImportError as missing:
            raise PasswordError(
                "passwords that are set at runtime need the package cryptography: pip install 'ottla[security]'"
            ) from missing
        self._secret = secret
        self._old_secret = config.password_encoder_old_secret
        self._cipher = config.password_encoder_cipher_algorithm
        self._factory = config.password_encoder_keyfactory_algorithm or next(iter(KEY_FACTORIES))
        self._bits = config.password_encoder_key_length
        self._iterations = config.password_encoder_iterations
        self._random = random

    def encode(self, password: str) -> str:
        salt = self._random.randbytes(_SALT_BYTES)
        vector = self._random.randbytes(_CBC_IV_BYTES if self._cipher == CBC else _GCM_IV_BYTES)
        key = _derive(self._secret, self._factory, salt, self._iterations, self._bits)
        fields: dict[str, object] = {
            "keyFactoryAlgorithm": self._factory,
            "cipherAlgorithm": self._cipher,
            "keyLength": self._bits,
            "iterations": self._iterations,
            "salt": _text(salt),
            "initializationVector": _text(vector),
            "encryptedPassword": _text(_encrypt(self._cipher, key, vector, password.encode())),
            "passwordLength": _java_length(password),
        }
        if self._cipher == GCM:
            fields["authenticationTagLength"] = _TAG_BITS
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, stored: str) -> str:
        """The password of its stored form. Raises PasswordError."""
        try:
            return _decode(stored, self._secret)
        except PasswordError:
            if not self._old_secret:
                raise
        return _decode(stored, self._old_secret)


def _decode(stored: str, secret: str) -> str:
    """Raises PasswordError."""
    fields = dict(part.strip().rpartition(":")[::2] for part in stored.split(","))
    try:
        factory = fields.get("keyFactoryAlgorithm") or next(iter(KEY_FACTORIES))
        cipher, bits, rounds = fields["cipherAlgorithm"], int(fields["keyLength"]), int(fields["iterations"])
        length = int(fields["passwordLength"])
        salt, vector, data = (
            b64decode(fields[name], validate=True)
            for name in ("salt", "initializationVector", "encryptedPassword")
        )
    except (KeyError, ValueError):
        raise PasswordError("it is not an encrypted password") from None
    if (
        factory not in KEY_FACTORIES
        or cipher not in (CBC, GCM)
        or bits not in KEY_BITS
        or not 1 <= rounds <= MOST_ITERATIONS
    ):
        raise PasswordError("it is encrypted in a way that is not built")
    found: str | None
    try:
        found = _decrypt(cipher, _derive(secret, factory, salt, rounds, bits), vector, data).decode()
    except ValueError:
        found = None
    if found is None or _java_length(found) != length:
        raise PasswordError("it was encrypted with another password.encoder.secret") from None
    return found


def _derive(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    return hashlib.pbkdf2_hmac(KEY_FACTORIES[factory], secret.encode(), salt, iterations, bits // 8)


def _encrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == GCM:
        return AESGCM(key).encrypt(vector, data, None)
    padder = PKCS7(128).padder()
    encryptor = _cbc(key, vector).encryptor()
    return bytes(encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize())


def _decrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    """Raises ValueError."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == GCM:
        try:
            return AESGCM(key).decrypt(vector, data, None)
        except InvalidTag:
            raise ValueError("the tag is wrong") from None
    decryptor = _cbc(key, vector).decryptor()
    unpadder = PKCS7(128).unpadder()
    padded = decryptor.update(data) + decryptor.finalize()
    return bytes(unpadder.update(padded) + unpadder.finalize())


def _cbc(key: bytes, vector: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CBC(vector))


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
