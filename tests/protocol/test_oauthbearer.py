"""OAUTHBEARER's messages, the responses of OAuth providers, and delegation tokens in SCRAM."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import parse_qs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla_protocol.http_client import MAX_BODY, HttpError, HttpExchange, parse_url
from ottla_protocol.sasl import scram
from ottla_protocol.sasl.mechanism import SCRAM_SHA_256, Deferred, SaslError
from ottla_protocol.sasl.oauthbearer import (
    MOST_BYTES,
    OAuthClient,
    OAuthServer,
    Token,
    TokenError,
    check_extensions,
)
from ottla_protocol.sasl.token_endpoint import Credentials, RetriableError, read_token, token_request

HERE = parse_url("https://id.test/token")


def accepts(token: str) -> Token:
    if token != "good.to-ken_1":
        raise TokenError("it is another one")
    return Token("alice", 5000)


def test_both_sides() -> None:
    client, server = OAuthClient("good.to-ken_1", {"cluster": "one, two"}), OAuthServer(accepts)
    assert client.first() == b"n,,\x01auth=Bearer good.to-ken_1\x01cluster=one, two\x01\x01"
    assert client.respond(server.respond(client.first())) is None
    assert client.complete
    assert (server.complete, server.user, server.expires_ms) == (True, "alice", 5000)


def test_a_refused_token() -> None:
    client, server = OAuthClient("bad", {}), OAuthServer(accepts)
    answer = server.respond(client.first())
    assert answer == b'{"status":"invalid_token"}'
    assert client.respond(answer) == b"\x01"
    with pytest.raises(SaslError, match="invalid_token") as caught:
        server.respond(b"\x01")
    assert caught.value.reason == "the token is refused: it is another one"
    assert not server.complete
    with pytest.raises(SaslError, match="invalid_token"):
        client.respond(b"")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "first message"),
        (b"\x01", "first message"),
        (b"n,,\x01\x01", "'auth' not specified"),
        (b"n,,\x01a=b\x01\x01", "'auth' not specified"),
        (b"n,,\x01auth=Bearer\x01\x01", "invalid 'auth' format"),
        (b"n,,\x01auth=Basic abc\x01\x01", "Invalid scheme"),
        (b"y,,\x01auth=Bearer good.to-ken_1\x01\x01", "first message"),
        (b"n,,\x01auth=Bearer good.to-ken_1\x01", "first message"),
        (b"n,,\x01auth=Bearer a b\x01\x01", "invalid 'auth' format"),
        ("n,,\x01auth=Bearer ü\x01\x01".encode(), "first message"),
        (b"n,a=bob,\x01auth=Bearer good.to-ken_1\x01\x01", "different from the token's principal name"),
    ],
)
def test_messages_that_are_refused(message: bytes, reason: str) -> None:
    server = OAuthServer(accepts)
    with pytest.raises(SaslError) as caught:
        server.respond(message)
    assert reason in (caught.value.reason or "")
    assert not server.complete


def test_an_authorization_id() -> None:
    server = OAuthServer(lambda _: Token("a=b,c", 1))
    assert server.respond(b"n,a=a=3Db=2Cc,\x01auth=bearer x\x01k=v\x01\x01") == b""


@given(st.binary(max_size=60) | st.text("n,a=\x01uthBer .-x").map(str.encode))
def test_garbage_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        OAuthServer(accepts).respond(message)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "\x01"}])
def test_extensions_that_cannot_be_sent(extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="extension"):
        check_extensions(extensions)


def read(data: bytes, pieces: int = 7) -> HttpExchange:
    http = HttpExchange(HERE)
    for start in range(0, len(data), pieces):
        if not http.complete:
            http.feed(data[start : start + pieces])
    if not http.complete:
        http.feed(b"")
    return http


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 5\r\n\r\nhello",
        b"\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_responses(rest: bytes, pieces: int) -> None:
    found = read(b"HTTP/1.1 200 OK\r\nX: y\r\n" + rest, pieces)
    assert (found.status, found.body) == (200, b"hello")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "closed before"),
        (b"SSH-2.0-x\r\n\r\n", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "closed before"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "larger"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", "closed before"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + b"x" * 40_000, "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000, "larger"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 30_000, "larger"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 30_000, "head"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BODY + 1), "larger"),
    ],
)
def test_responses_that_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(HttpError, match=reason):
        read(data, 4096)


def test_small_chunks_are_read_in_proportion() -> None:
    """Each of these looks like the end of a response, and comes in pieces."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    def seconds(chunks: int) -> float:
        begun = time.process_time()
        assert read(head + b"2\r\n\r\n\r\n" * chunks + b"0\r\n\r\n", 7).body == b"\r\n" * chunks
        return time.process_time() - begun

    few = min(seconds(1_000) for _ in range(3))
    assert seconds(20_000) < 60 * few


@given(st.binary(max_size=80))
@example(b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
def test_garbage_in_responses(data: bytes) -> None:
    with suppress(HttpError):
        assert read(data).complete


@pytest.mark.parametrize(
    "url", ["ftp://x", "https://", "https://u:p@x/", "x", "https://x/a b", "https://x:99999/"]
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|user name|characters|[Pp]ort"):
        parse_url(url)


def test_the_request_for_a_token() -> None:
    request = HttpExchange(parse_url("http://[::1]:81")).request
    assert request.startswith(b"GET / HTTP/1.1\r\nHost: [::1]:81\r\n")
    head, _, body = token_request(HERE, Credentials("me", "s&cret", "a b")).request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /token HTTP/1.1\r\nHost: id.test:443\r\n")
    assert b"Authorization: Basic bWU6cyZjcmV0" in head
    assert parse_qs(body.decode()) == {"grant_type": ["client_credentials"], "scope": ["a b"]}


def test_responses_with_tokens() -> None:
    def token(status: int, body: bytes) -> tuple[str, float]:
        return read_token(read(b"HTTP/1.0 %d -\r\n\r\n%s" % (status, body)))

    assert token(200, b'{"access_token": " a.b.c ", "expires_in": 100}') == ("a.b.c", 80.0)
    assert token(200, b'{"access_token": "abc"}') == ("abc", 0.0)
    assert token(200, b'{"access_token": "abc", "expires_in": -5}') == ("abc", 0.0)
    for status, body, error in (
        (401, b'{"error": "invalid_client"}', HttpError),
        (302, b"", HttpError),
        (503, b"", RetriableError),
        (200, b"<html>", HttpError),
        (200, b"[]", HttpError),
        (200, b'{"access_token": 5}', HttpError),
        (200, b'{"access_token": "s\\u0001ecret"}', SaslError),
    ):
        with pytest.raises(error) as caught:
            token(status, body)
        assert "ecret" not in str(caught.value)


def login(
    find: Callable[[str], scram.TokenCredential | None], *, tokenauth: bool = True
) -> tuple[scram.ScramServer, scram.ScramClient]:
    server = scram.ScramServer(SCRAM_SHA_256, lambda _: None, "theirs", b"secret", find)
    return server, scram.ScramClient(SCRAM_SHA_256, "id", "hmac", "ours", tokenauth=tokenauth)


def test_work_for_threads_is_left_to_the_caller() -> None:
    def validate(token: str) -> Token:
        raise Deferred(lambda: Token("alice", 1), lambda made: made)

    server = OAuthServer(validate)
    with pytest.raises(Deferred) as raised:
        server.respond(OAuthClient("token", {}).first())
    assert not server.complete
    assert raised.value.then(raised.value.work()) == b""
    assert (server.complete, server.user) == (True, "alice")

    def find(_: str) -> scram.TokenCredential:
        raise Deferred(lambda: scram.salt_password(SCRAM_SHA_256, "hmac", b"salt", 4096), known)

    def known(salted: bytes) -> scram.TokenCredential:
        return scram.TokenCredential(scram.credential(SCRAM_SHA_256, salted, b"salt", 4096), "bob", 9)

    shared, client = login(find)
    with pytest.raises(Deferred) as raised:
        shared.respond(client.first())
    final = client.respond(raised.value.then(raised.value.work()))
    assert final is not None
    assert client.respond(shared.respond(final)) is None
    assert (shared.complete, shared.user, shared.token_authenticated) == (True, "bob", True)


def test_a_token_that_is_too_large_is_not_looked_at() -> None:
    server = OAuthServer(lambda _: pytest.fail("it is"))
    assert server.respond(OAuthClient("x" * MOST_BYTES, {}).first()) == b'{"status":"invalid_token"}'
    with pytest.raises(SaslError) as caught:
        server.respond(b"\x01")
    assert "bytes, at most" in caught.value.reason


def test_delegation_tokens_in_scram() -> None:
    salted = scram.salt_password(SCRAM_SHA_256, "hmac", b"salt", 4096)
    known = scram.TokenCredential(scram.credential(SCRAM_SHA_256, salted, b"salt", 4096), "alice", 9000)
    server, client = login({"id": known}.get)
    message: bytes | None = client.first()
    while message is not None:
        message = client.respond(server.respond(message))
    assert (server.complete, server.user, server.expires_ms) == (True, "alice", 9000)
    assert server.token_authenticated
    for find, tokenauth in (({}.get, True), ({"id": known}.get, False)):
        server, client = login(find, tokenauth=tokenauth)
        final = client.respond(server.respond(client.first()))
        assert final is not None
        with pytest.raises(SaslError, match="invalid credentials"):
            server.respond(final)
