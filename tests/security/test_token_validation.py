"""Tokens that a listener with OAUTHBEARER accepts and refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.token_validation import SignedTokens, UnsecuredTokens, parse_keys
from ottla_protocol.sasl.oauthbearer import OAuthServer, TokenError

NOW = 1_700_000_000
CLAIMS = {"sub": "alice", "iss": "https://id.test", "aud": "kafka", "iat": NOW - 10, "exp": NOW + 60}


@cache
def key(kind: str, name: str = "") -> Any:
    if kind == "RSA":
        return rsa.generate_private_key(65537, 2048)
    if kind == "Ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key({"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1()}[kind])


def jwk(kind: str, kid: str, **changes: Any) -> dict[str, Any]:
    algorithms: dict[str, Any] = {
        "RSA": jwt.algorithms.RSAAlgorithm,
        "Ed25519": jwt.algorithms.OKPAlgorithm,
    }
    made = algorithms.get(kind, jwt.algorithms.ECAlgorithm).to_jwk(key(kind).public_key(), as_dict=True)
    return {**made, "kid": kid, "use": "sig", **changes}


def keys(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(entries)}).encode()


JWKS = keys(
    jwk("RSA", "r"),
    jwk("P-256", "e"),
    jwk("P-384", "f"),
    jwk("Ed25519", "d"),
    {"kty": "oct", "kid": "o", "k": base64.urlsafe_b64encode(b"x" * 32).decode()},
    {"kty": "RSA", "kid": "broken", "n": "AQ", "e": 3},
    jwk("RSA", "for-encryption", use="enc"),
)


def tokens(**changes: Any) -> SignedTokens:
    settings: dict[str, Any] = {
        "audience": ("kafka",),
        "issuer": "https://id.test",
        "skew_seconds": 30,
        "scope_claim": "scope",
        "sub_claim": "sub",
        "now_ms": lambda: NOW * 1000,
    }
    made = SignedTokens(**{**settings, **changes})
    made.use(JWKS)
    return made


def signed(kind: str = "RSA", algorithm: str = "RS256", kid: str | None = "r", **changes: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode(claims, key(kind), algorithm, headers={} if kid is None else {"kid": kid})


def refusal(validate: Callable[[str], object], token: str) -> str:
    with pytest.raises(TokenError) as caught:
        validate(token)
    return str(caught.value)


def test_other_threads_run_between_the_keys_that_are_tried() -> None:
    made, pauses = tokens(), []
    made.use(keys(jwk("RSA", "a"), jwk("RSA", "b"), jwk("RSA", "c")))
    made.between_keys = lambda: pauses.append(True)
    wrong = jwt.encode(CLAIMS, rsa.generate_private_key(65537, 2048), "RS256")
    assert refusal(made.validate, wrong) == "its signature is wrong"
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("kind", "algorithm", "kid"),
    [
        ("RSA", "RS256", "r"),
        ("RSA", "PS512", "r"),
        ("P-256", "ES256", "e"),
        ("P-384", "ES384", "f"),
        ("Ed25519", "EdDSA", "d"),
        ("RSA", "RS256", None),
    ],
)
def test_signed_tokens(kind: str, algorithm: str, kid: str | None) -> None:
    found = tokens().validate(signed(kind, algorithm, kid, aud=["other", "kafka"], scope=["a", "b"]))
    assert found == ("alice", (NOW + 60) * 1000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW - 30}, "expired"),
        ({"exp": None}, "no time exp"),
        ({"exp": "tomorrow"}, "not a time"),
        ({"exp": 1e300}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"iat": None}, "no time iat"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iss": "https://evil.test"}, "issuer"),
        ({"iss": None}, "issuer is missing"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience is missing"),
        ({"aud": [["kafka"]]}, "audience"),
        ({"sub": None}, "no user"),
        ({"sub": "  "}, "no user"),
        ({"sub": 7}, "no user"),
        ({"sub": "a" * 40_000}, "40000 characters, 255 is the most"),
        ({"sub": "a\x00b"}, "control character"),
        ({"sub": "a\u2028b"}, "control character"),
        ({"sub": "\ud800"}, "lone surrogate"),
        ({"scope": ["a", "a"]}, "twice"),
        ({"scope": [1]}, "malformed"),
        ({"scope": {"a": 1}}, "malformed"),
    ],
)
def test_claims_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    # PyJWT itself refuses to encode some of them.
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    token = jwt.api_jws.encode(json.dumps(claims).encode(), key("RSA"), "RS256", {"kid": "r"})
    assert reason in refusal(tokens().validate, token)


def test_within_the_difference_of_clocks_a_session_lasts_until_its_end() -> None:
    assert tokens().validate(signed(exp=NOW - 10)).expires_ms == (NOW + 20) * 1000


def test_an_audience_needs_to_be_expected() -> None:
    assert "audience" in refusal(tokens(audience=()).validate, signed())
    assert tokens(audience=()).validate(signed(aud=None)).principal == "alice"


def test_other_claims_name_the_user() -> None:
    assert tokens(sub_claim="azp").validate(signed(azp="service")).principal == "service"
    assert tokens().validate(signed(sub="Zoë 🦊" * 50 + " ")).principal == "Zoë 🦊" * 50


def test_signatures_that_are_refused() -> None:
    made = tokens()
    asked = []
    made.on_unknown_key = lambda: asked.append(1)
    public = key("RSA").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body, signature = signed().split(".")

    def encoded(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    hmac_signed = f"{encoded({'alg': 'HS256', 'kid': 'r'})}.{body}"
    digest = base64.urlsafe_b64encode(
        jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(hmac_signed.encode(), public)
    )
    for token in (
        f"{encoded({'alg': 'none', 'kid': 'r'})}.{body}.",
        f"{hmac_signed}.{digest.rstrip(b'=').decode()}",
        jwt.encode(CLAIMS, b"x" * 32, "HS256", headers={"kid": "o"}),
        f"{encoded({'alg': 'RS256', 'kid': 'r', 'crit': ['exp']})}.{body}.{signature}",
        f"{encoded({'alg': ['RS256'], 'kid': 'r'})}.{body}.{signature}",
        f"{encoded({'alg': 'RS256', 'kid': 5})}.{body}.{signature}",
        f"{head}.{encoded({**CLAIMS, 'sub': 'admin'})}.{signature}",
        f"{head}.{body}.",
        signed("P-256", "ES256", "r"),
        jwt.encode(CLAIMS, rsa.generate_private_key(65537, 2048), "RS256", headers={"kid": "r"}),
        signed(kid="for-encryption"),
        "a.b.c",
        "..",
        "x",
        encoded("["),
        f"{base64.urlsafe_b64encode(b'[' * 40_000).decode().rstrip('=')}.x.y",
    ):
        refusal(made.validate, token)
    assert len(asked) == 2  # o, for-encryption
    assert "no key is known for its key id 'new'" in refusal(made.validate, signed(kid="new"))
    assert len(asked) == 3


def test_a_header_of_many_values_is_not_parsed() -> None:
    many = {"alg": "RS256", "kid": "r", **{str(number): 0 for number in range(200)}}
    token = f"{base64.urlsafe_b64encode(json.dumps(many).encode()).rstrip(b'=').decode()}.x.y"
    assert refusal(tokens().validate, token) == "its header has more than 100 values"
    unsigned = UnsecuredTokens({}, lambda: NOW).validate
    assert refusal(unsigned, token.removesuffix("y")) == "its header has more than 100 values"
    # A chain of certificates is one long text.
    chained = jwt.encode(CLAIMS, key("RSA"), "RS256", headers={"kid": "r", "x5c": ["x" * 4000] * 3})
    assert tokens().validate(chained).principal == CLAIMS["sub"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": 1}',
        b'{"keys": []}',
        b'{"keys": [1, {}]}',
        b"[" * 100_000,
        keys({"kty": "oct", "k": "eA"}),
    ],
)
def test_keys_that_are_none(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"keys|key for"):
        parse_keys(data)


@given(st.text("eyJ.-_a0="))
def test_no_text_is_a_token(token: str) -> None:
    refusal(tokens().validate, token)
    refusal(UnsecuredTokens({}, lambda: NOW * 1000).validate, token)


def unsecured(header: object = None, **changes: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    parts = [json.dumps(each).encode() for each in (header or {"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts) + "."


def test_tokens_without_signature() -> None:
    options = {
        "unsecuredValidatorRequiredScope": "read write",
        "unsecuredValidatorAllowableClockSkewMs": "3000",
    }
    validate = UnsecuredTokens(options, lambda: NOW * 1000).validate
    assert validate(unsecured(scope="write read")).principal == "alice"
    assert validate(unsecured(scope=["write", "read"], iat=None)).principal == "alice"
    assert "expired" in refusal(validate, unsecured(exp=NOW - 3))
    assert "future" in refusal(validate, unsecured(iat=NOW + 4))
    assert "before" in refusal(validate, unsecured(iat=NOW + 2, exp=NOW + 1))
    assert "user" in refusal(validate, unsecured(sub=None))
    assert "control character" in refusal(validate, unsecured(sub="alice\n"))
    assert "alg" in refusal(validate, unsecured({"alg": "HS256"}))
    assert "signature" in refusal(validate, unsecured() + "x")
    with pytest.raises(TokenError) as caught:
        validate(unsecured(scope="read"))
    assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "read write")
    server = OAuthServer(validate)
    answer = server.respond(b"n,,\x01auth=Bearer " + unsecured(scope="read").encode() + b"\x01\x01")
    assert answer == b'{"status":"insufficient_scope","scope":"read write"}'
    with pytest.raises(ValueError, match="ClockSkew"):
        UnsecuredTokens({"unsecuredValidatorAllowableClockSkewMs": "soon"}, lambda: 0)
