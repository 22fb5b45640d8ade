"""Passwords that are set at runtime, as they are stored."""

from __future__ import annotations

import re
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.config import BrokerConfig
from ottla_broker.config.password_encoder import PasswordEncoder, PasswordError


@cache
def encoder(secret: str = "secret", **changes: str) -> PasswordEncoder:
    keys = {f"password.encoder.{name.replace('_', '.')}": value for name, value in changes.items()}
    config = BrokerConfig.from_properties({"password.encoder.secret": secret, **keys})
    return PasswordEncoder(config, Random(1))


@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"])
@given(password=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_password_comes_back(cipher: str, password: str) -> None:
    made = encoder(cipher_algorithm=cipher, iterations="1024")
    stored = made.encode(password)
    assert f"cipherAlgorithm:{cipher}," in stored
    assert made.decode(stored) == password
    assert made.encode(password) != stored


@pytest.mark.parametrize("factory", ["PBKDF2WithHmacSHA1", "PBKDF2WithHmacSHA256"])
@pytest.mark.parametrize("bits", ["192", "256"])
def test_other_keys(factory: str, bits: str) -> None:
    """The stored form says how it was made, so a reader's own settings don't matter."""
    stored = encoder(keyfactory_algorithm=factory, key_length=bits).encode("pässword 🦊")
    assert f"keyFactoryAlgorithm:{factory},cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:{bits}," in stored
    assert ",passwordLength:11" in stored  # in Java the fox counts twice
    assert encoder().decode(stored) == "pässword 🦊"


def test_the_old_secret_reads_what_it_has_encrypted() -> None:
    stored = encoder("old").encode("x")
    assert encoder("new", old_secret="old").decode(stored) == "x"
    for wrong in (encoder("new"), encoder("new", old_secret="older")):
        with pytest.raises(PasswordError, match=r"another password\.encoder\.secret"):
            wrong.decode(stored)


STORED = encoder().encode("x")


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "plain text",
        "keyLength:x",
        STORED.replace("salt:", "salz:"),
        STORED.replace("salt:", "salt:!"),
        STORED.replace("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding"),
        STORED.replace("SHA512", "MD5"),
        STORED.replace("keyLength:128", "keyLength:64"),
        STORED.replace("iterations:4096", "iterations:2000000000"),
        STORED.replace("iterations:4096", "iterations:0"),
        re.sub("initializationVector:[^,]+", "initializationVector:AAAA", STORED),
        re.sub("encryptedPassword:[^,]+", "encryptedPassword:AAAA", STORED),
        re.sub("encryptedPassword:[^,]+", "encryptedPassword:", STORED),
        STORED.replace("passwordLength:1", "passwordLength:2"),
        STORED.replace("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"),
    ],
)
def test_stored_forms_that_are_refused(stored: str) -> None:
    with pytest.raises(PasswordError, match=r"encrypted"):
        encoder().decode(stored)


@given(st.text("keyLngthsal:,=0123456789/+"))
def test_no_text_is_a_stored_password(stored: str) -> None:
    with pytest.raises(PasswordError):
        encoder().decode(stored)


def test_without_a_secret_there_are_none() -> None:
    with pytest.raises(PasswordError, match=r"password\.encoder\.secret is not set"):
        PasswordEncoder(BrokerConfig.from_properties({}), Random(1))
