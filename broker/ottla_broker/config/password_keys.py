"""Keys of the encryption of passwords that are set at runtime (KIP-226)."""

from __future__ import annotations

from typing import Final

from ottla_broker.config.model import (
    PASSWORD,
    Key,
    Validator,
    between,
    integer,
    one_of,
    optional_string,
    string,
)

CBC: Final = "AES/CBC/PKCS5Padding"
GCM: Final = "AES/GCM/NoPadding"
KEY_FACTORIES: Final = {
    "PBKDF2WithHmacSHA512": "sha512",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA1": "sha1",
}
"""Derivations of a key from the secret: the hash of each, the default first."""
KEY_BITS: Final = (128, 192, 256)
MOST_ITERATIONS: Final = 1_000_000


class PasswordKeys:
    """Keys by which passwords that are set at runtime are encrypted in the store."""

    password_encoder_secret: Key[str | None] = Key(
        PASSWORD,
        None,
        "The secret that encrypts passwords which are set at runtime. Without it they are refused.",
        note="It needs the package cryptography: pip install 'ottla[security]'.",
    )
    password_encoder_old_secret: Key[str | None] = Key(
        PASSWORD,
        None,
        "The previous password.encoder.secret, for passwords that it has encrypted.",
        note="The next change of this broker's configs at runtime encrypts them with the new one.",
    )
    password_encoder_cipher_algorithm = string(
        CBC, "The cipher for passwords that are set at runtime.", one_of(CBC, GCM)
    )
    password_encoder_keyfactory_algorithm = optional_string(
        "The derivation of the cipher's key from the secret.",
        one_of(*KEY_FACTORIES),
        note=f"The default is {next(iter(KEY_FACTORIES))}.",
    )
    password_encoder_key_length = integer(
        128,
        "The length of the cipher's key, in bits.",
        Validator(
            lambda bits: None if bits in KEY_BITS else "Value must be 128, 192 or 256", "128, 192, 256"
        ),
    )
    password_encoder_iterations = integer(
        4096, "The iterations of that derivation.", between(1024, MOST_ITERATIONS)
    )
