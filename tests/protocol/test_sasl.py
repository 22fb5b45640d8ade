"""SASL mechanisms: both sides against each other, the vectors of the RFCs, and messages that aren't any."""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla_protocol.sasl import plain, scram
from ottla_protocol.sasl.mechanism import (
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    SaslClient,
    SaslError,
    SaslServer,
)
from ottla_protocol.sasl.plain import PlainClient, PlainServer
from ottla_protocol.sasl.salts import ITERATIONS, SALT_BYTES, SaltForms
from ottla_protocol.sasl.scram import ScramClient, ScramServer, TokenCredential

_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
MECHANISMS = pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])


def credential(mechanism: str, password: str, salt: bytes = b"salt") -> scram.ScramCredential:
    return scram.credential(mechanism, scram.salt_password(mechanism, password, salt, 4096), salt, 4096)


def finder(mechanism: str, **passwords: str) -> Callable[[str], scram.ScramCredential | None]:
    known = {user: credential(mechanism, password) for user, password in passwords.items()}
    return known.get


def converse(client: ScramClient, server: ScramServer) -> None:
    message: bytes | None = client.first()
    while message is not None:
        message = client.respond(server.respond(message))
    assert client.complete
    assert server.complete


def test_the_vector_of_rfc_7677() -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = client.respond(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert client.complete


@MECHANISMS
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C", "Ünïcode 名"])
def test_both_sides(mechanism: str, user: str) -> None:
    found = credential(mechanism, "päss,=")
    assert scram.decode_credential(scram.encode_credential(found)) == found
    server = ScramServer(mechanism, {user: found}.get, "theirs", b"secret")
    converse(ScramClient(mechanism, user, "päss,=", "ours"), server)
    assert server.user == user


@MECHANISMS
def test_unknown_users_fail_like_wrong_passwords(mechanism: str) -> None:
    forms = SaltForms()
    forms.add(b"salt", 4096)

    def attempt(user: str, nonce: str = "theirs") -> tuple[bytes, str]:
        server = ScramServer(mechanism, finder(mechanism, alice="right"), nonce, b"secret", forms=forms)
        client = ScramClient(mechanism, user, "wrong", "ours")
        first = server.respond(client.first())
        final = client.respond(first)
        assert final is not None
        with pytest.raises(SaslError) as raised:
            server.respond(final)
        assert not server.complete
        return first, str(raised.value)

    (known, said), (unknown, same) = attempt("alice"), attempt("mallory")
    assert said == same
    assert [len(part) for part in known.split(b",")] == [len(part) for part in unknown.split(b",")]
    assert known[-5:] == unknown[-5:]
    # The salt of a name doesn't change, or it would show that there is no such user.
    assert attempt("mallory")[0] == unknown
    assert attempt("eve")[0] != unknown


class Work:
    """Counts what a server hashes and compares: each call, and the sizes of what it gets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[object, ...]] = []
        for module in (scram, plain):
            for name in ("hmac", "hashlib"):
                if hasattr(module, name):
                    patch.setattr(module, name, self._counted(getattr(module, name)))

    def _counted(self, module: Any) -> Any:
        def counted(name: str) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                # Of two that are compared, the second is the stranger's, and decides how long it takes.
                sized = args[1:] if name == "compare_digest" else args
                sizes = (len(each) if isinstance(each, bytes) else each for each in sized)
                self.done.append((name, *sizes))
                return getattr(module, name)(*args)

            return call

        names = ("digest", "compare_digest", "new", "pbkdf2_hmac", "shake_256")
        return SimpleNamespace(**{name: counted(name) for name in names if hasattr(module, name)})


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, "token"])
def test_unknown_users_take_the_work_of_wrong_passwords(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = SCRAM_SHA_512 if mechanism == "token" else mechanism
    forms = SaltForms()
    if mechanism != PLAIN:
        found = finder(by, alice="right")
        forms.add(b"salt", 4096)
        tokens = {"alice": TokenCredential(credential(by, "right", b"s" * 26), "owner", 2**60)}
    work = Work(monkeypatch)

    def attempt(user: str) -> tuple[list[tuple[object, ...]], str]:
        server: SaslServer
        client: SaslClient
        if mechanism == PLAIN:
            server, client = PlainServer({"alice": "right"}), PlainClient(user, "wrong")
        else:
            server = ScramServer(by, found, "theirs", b"secret", tokens.get, forms)
            client = ScramClient(by, user, "wrong", "ours", tokenauth=mechanism == "token")
        done: list[tuple[object, ...]] = []
        message: bytes | None = client.first()
        while True:
            assert message is not None
            work.done.clear()
            try:
                answer = server.respond(message)
            except SaslError as error:
                return done + work.done, str(error)
            done += work.done
            message = client.respond(answer)

    known, unknown = attempt("alice"), attempt("mallo")
    assert known == unknown
    assert known[0]


KAFKAS_SALT = b"1j9ud0ymvl7q0k5n3r2t8w4x6z"


def test_salts_of_unknown_users_have_the_forms_of_users() -> None:
    def shown(name: str) -> tuple[bytes, int]:
        server = ScramServer(SCRAM_SHA_256, lambda _: None, "theirs", b"secret", forms=forms)
        answer = server.respond(f"n,,n={name},r=x".encode()).decode()
        _, salt, iterations = answer.split(",")
        return b64decode(salt[2:]), int(iterations[2:])

    forms = SaltForms()
    salt, iterations = shown("absent")
    assert (len(salt), iterations) == (SALT_BYTES, ITERATIONS)
    users = [(b"\xff" * 64, 8192)] * 3 + [(KAFKAS_SALT, 4096)] * 2 + [(b"\xfe" * 24, 16384)]
    for user in [*users, (b"\xfd" * 5000, 4096), (b"\xfc" * 30, 5000)]:
        forms.add(*user)
    forms.remove(b"\xfc" * 30, 5000)
    seen = Counter(
        (len(salt) if not re.fullmatch(rb"[0-9a-z]+", salt) else "text", iterations)
        for salt, iterations in (shown(f"absent{number}") for number in range(600))
    )
    expected = {(64, 8192): 300, ("text", 4096): 200, (24, 16384): 100}
    assert seen.keys() == expected.keys()
    assert all(abs(seen[form] - expected[form]) < 60 for form in seen)
    assert shown("absent") == shown("absent")


@MECHANISMS
def test_a_server_that_does_not_know_the_password_is_noticed(mechanism: str) -> None:
    client = ScramClient(mechanism, "alice", "right", "ours")
    client.first()
    client.respond(b"r=oursX,s=c2FsdA==,i=4096")
    with pytest.raises(SaslError, match="its SCRAM signature is wrong"):
        client.respond(b"v=AAAA")


@pytest.mark.parametrize(
    "challenge",
    [b"", b"r=oursX", b"r=X,s=c2FsdA==,i=4096", b"r=ours,s=c2FsdA==,i=4096", b"r=oursX,s=c2FsdA==,i=1",
     b"r=oursX,s=c2FsdA==,i=999999999", b"r=oursX,s=%,i=4096", b"\xff"],
)  # fmt: skip
def test_a_client_refuses_challenges_that_are_none(challenge: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "x", "ours")
    client.first()
    with pytest.raises(SaslError):
        client.respond(challenge)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
@example([b"n,,n=a,r=x", b"c=biws,r=xtheirs,p=AAAA"])
@example([b"n,a=b,n=a,r=x"])
@example([b"p=tls-unique,,n=a,r=x"])
@example([b"n,,n=a,r=x,tokenauth=true"])
@example([b"x" * 20_000])
def test_a_server_survives_any_message(messages: list[bytes]) -> None:
    server = ScramServer(SCRAM_SHA_512, lambda _: None, "theirs", b"secret")
    for message in messages:
        try:
            server.respond(message)
        except SaslError:
            break
    assert not server.complete


@given(_names, _names)
def test_plain(user: str, password: str) -> None:
    server = PlainServer({user: password})
    client = PlainClient(user, password)
    assert client.respond(server.respond(client.first())) is None
    assert (client.complete, server.complete, server.user) == (True, True, user)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0eve\0right", "Invalid username or password"),
        (b"\0eve\0\0", "expected 3 tokens, got 4"),
        (b"\0\0right", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0right", "authorization id"),
        (b"alice", "expected 3 tokens, got 1"),
        (b"\0\xff\0x", "not UTF-8"),
    ],
)
def test_plain_refuses(message: bytes, error: str) -> None:
    server = PlainServer({"alice": "right"})
    with pytest.raises(SaslError, match=error):
        server.respond(message)
    assert not server.complete


@pytest.mark.parametrize("text", ["", "salt=x", "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=x"])
def test_credentials_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        scram.decode_credential(text)
