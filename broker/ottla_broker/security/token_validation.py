"""Checks the tokens of OAUTHBEARER: signed ones (KIP-768), or without signature where settings ask for that.

What is checked, and in which words, is that of Kafka's ``ValidatorAccessTokenValidator`` and
``OAuthBearerUnsecuredValidatorCallbackHandler``; the client only learns that its token is invalid. Imported where a
listener has OAUTHBEARER, because it loads PyJWT.
"""

from __future__ import annotations

import json
import unicodedata
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from ottla_protocol.sasl.oauthbearer import INSUFFICIENT_SCOPE, Token, TokenError

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",), "Ed25519": ("EdDSA",)}
_RSA_BITS: Final = range(2048, 8193)
_MOST_KEYS: Final = 128
_TRIED: Final = 4
"""How many keys to try with a token that names none."""
_MOST_IN_HEADER: Final = 100
"""Values of a token's header, which is parsed before its signature is checked; providers write three to six."""
_SHOWN: Final = 64
_LONGEST_NAME: Final = 255
"""The characters of a user's name, as OpenID Connect limits ``sub``."""
_NOT_IN_NAMES: Final = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Control characters, surrogates (which have no UTF-8) and line ends, by their Unicode categories."""

_SIGNATURES: Final = jwt.PyJWS()


class _Key(NamedTuple):
    key_id: str | None
    algorithms: Collection[str]
    public: Any


def parse_keys(data: bytes) -> list[_Key]:
    """The usable keys of a JWKS (RFC 7517). Raises ValueError if there are none.

    Symmetric keys are left out, so that no token is accepted that was signed with something public.
    """
    try:
        found = json.loads(data)
        entries = found["keys"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise ValueError("is not a JSON object with keys") from None
    if not isinstance(entries, list):
        raise ValueError("is not a JSON object with keys")
    keys = [key for entry in entries[:_MOST_KEYS] if (key := _key(entry)) is not None]
    if not keys:
        raise ValueError("has no key for signatures by RSA, EC or Ed25519")
    return keys


def _key(entry: object) -> _Key | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    kind = entry.get("kty")
    algorithms: Sequence[str] = ()
    if kind == "RSA":
        algorithms = _RSA
    elif kind in ("EC", "OKP") and isinstance(entry.get("crv"), str):
        algorithms = _CURVES.get(entry["crv"], ())
    named = entry.get("alg")
    if named is not None:
        algorithms = [each for each in algorithms if each == named]
    if not algorithms:
        return None
    # Without the private parts, if the file has them.
    public = {name: entry[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in entry}
    try:
        key = jwt.PyJWK(public, algorithm=algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size not in _RSA_BITS:
        return None
    key_id = entry.get("kid")
    return _Key(key_id if isinstance(key_id, str) else None, frozenset(algorithms), key)


class SignedTokens:
    """Accepts tokens that one of :attr:`keys` has signed, for an audience and from an issuer.

    :meth:`validate` may run on any thread, where it calls :attr:`on_unknown_key`; the loop thread owns the rest.

    Attributes:
        keys: those in force.
        between_keys: called before a token that names no key is tried with the next one.
    """

    def __init__(
        self,
        *,
        audience: Collection[str],
        issuer: str | None,
        skew_seconds: int,
        scope_claim: str,
        sub_claim: str,
        now_ms: Callable[[], int],
    ) -> None:
        self.keys: Sequence[_Key] = ()
        self.on_unknown_key: Callable[[], None] = lambda: None
        self.between_keys: Callable[[], None] = lambda: None
        self._audience = frozenset(audience)
        self._issuer = issuer
        self._skew = skew_seconds
        self._scope_claim = scope_claim
        self._sub_claim = sub_claim
        self._now_ms = now_ms

    def use(self, data: bytes) -> None:
        """Put the keys of a JWKS into force. Raises ValueError if it has none."""
        self.keys = parse_keys(data)

    def validate(self, token: str) -> Token:
        """Raises TokenError."""
        claims = self._verified(token)
        now = self._now_ms() / 1000
        expires = _number(claims, "exp")
        _number(claims, "iat")
        if now - self._skew >= expires:
            raise TokenError("it has expired (exp)")
        if "nbf" in claims and now + self._skew < _number(claims, "nbf"):
            raise TokenError("it is not valid yet (nbf)")
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise TokenError(f"its issuer is {_short(claims.get('iss'))} (iss)")
        self._check_audience(claims.get("aud"))
        _scopes(claims, self._scope_claim)
        subject = _name(claims, self._sub_claim).strip()
        # Within the accepted difference of the clocks the session lasts until its end.
        return Token(subject, int((expires if expires > now else expires + self._skew) * 1000))

    def _check_audience(self, audience: object) -> None:
        if not self._audience and audience is None:
            return
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not self._audience.intersection(
            each for each in named if isinstance(each, str)
        ):
            raise TokenError(f"its audience is {_short(audience)} (aud)")

    def _verified(self, token: str) -> Mapping[str, Any]:
        if token.count(".") != 2:
            raise TokenError("it is not a signed JWT")
        signed, _, signature = token.rpartition(".")
        encoded, _, payload = signed.partition(".")
        header = _header(encoded)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or "crit" in header or "b64" in header:
            raise TokenError("its header is not accepted")
        if key_id is not None and not isinstance(key_id, str):
            raise TokenError("its key id is not a text")
        keys = self.keys
        fitting = [
            key for key in keys if algorithm in key.algorithms and (key_id is None or key.key_id == key_id)
        ]
        if not fitting:
            if all(key.key_id != key_id for key in keys):
                self.on_unknown_key()
            raise TokenError(
                f"no key is known for its key id {_short(key_id)} and algorithm {_short(algorithm)}"
            )
        verify = _SIGNATURES.get_algorithm_by_name(algorithm).verify
        message, proof = signed.encode(), _decoded(signature)
        for number, key in enumerate(fitting[:_TRIED]):
            if number:
                self.between_keys()
            try:
                right = verify(message, key.public, proof)
            except (jwt.PyJWTError, ValueError, TypeError):
                continue
            if right:
                return _object(_decoded(payload))
        raise TokenError("its signature is wrong")


class UnsecuredTokens:
    """Accepts tokens with ``alg: none`` by what they say of themselves: for trials only.

    ``options`` are those of Kafka's handler: ``unsecuredValidatorPrincipalClaimName`` and others.
    """

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        """Raises ValueError for an option's value."""
        self._principal_claim = options.get("unsecuredValidatorPrincipalClaimName") or "sub"
        self._scope_claim = options.get("unsecuredValidatorScopeClaimName") or "scope"
        self._required = (options.get("unsecuredValidatorRequiredScope") or "").split()
        skew = options.get("unsecuredValidatorAllowableClockSkewMs") or "0"
        if not skew.isascii() or not skew.isdigit():
            raise ValueError("unsecuredValidatorAllowableClockSkewMs is not a number of milliseconds")
        self._skew = int(skew) / 1000
        self._now_ms = now_ms

    def validate(self, token: str) -> Token:
        """Raises TokenError."""
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise TokenError("it is not a JWT without signature")
        header, claims = _header(parts[0]), _object(_decoded(parts[1]))
        if header.get("alg") != "none":
            raise TokenError("it is not a JWT without signature: its alg is not none")
        principal = _name(claims, self._principal_claim)
        now, expires = self._now_ms() / 1000, _number(claims, "exp")
        if "iat" in claims:
            issued = _number(claims, "iat")
            if now + self._skew < issued:
                raise TokenError("it was issued in the future (iat)")
            if issued >= expires:
                raise TokenError("it expires before it was issued (exp)")
        if now - self._skew >= expires:
            raise TokenError("it has expired (exp)")
        if not set(self._required) <= set(_scopes(claims, self._scope_claim)):
            raise TokenError("a required scope is missing", INSUFFICIENT_SCOPE, " ".join(self._required))
        return Token(principal, int((expires if expires > now else expires + self._skew) * 1000))


def _decoded(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise TokenError("it is not base64") from None


def _header(encoded: str) -> Mapping[str, Any]:
    """A token's header. Parsing thousands of values would take longer than checking the signature."""
    data = _decoded(encoded)
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_IN_HEADER:
        raise TokenError(f"its header has more than {_MOST_IN_HEADER} values")
    return _object(data, "header is")


def _object(data: bytes, what: str = "claims are") -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TokenError(f"its {what} not a JSON object")
    return found


def _name(claims: Mapping[str, Any], claim: str) -> str:
    """The user's name, which goes into ACLs, quotas, ZooKeeper's paths and the log. Raises TokenError."""
    value = claims.get(claim)
    if not isinstance(value, str) or not value.strip():
        raise TokenError(f"it names no user ({claim})")
    if len(value) > _LONGEST_NAME:
        raise TokenError(
            f"its user's name has {len(value)} characters, {_LONGEST_NAME} is the most ({claim})"
        )
    if any(unicodedata.category(each) in _NOT_IN_NAMES for each in value):
        raise TokenError(f"its user's name has a control character or a lone surrogate ({claim})")
    return value


def _number(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    # Up to the year 9999, so that sums stay exact.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 253402300799:
        raise TokenError(f"it has no time {name}" if value is None else f"its {name} is not a time")
    return float(value)


def _scopes(claims: Mapping[str, Any], name: str) -> list[str]:
    """A token's scopes: a text is a single one in a signed token, or several with spaces between them."""
    value = claims.get(name)
    if value is None:
        return []
    scopes = value.split() if isinstance(value, str) else value
    if not isinstance(scopes, list) or not all(isinstance(each, str) and each.strip() for each in scopes):
        raise TokenError(f"its scopes are malformed ({name})")
    if not isinstance(value, str) and len(set(scopes)) != len(scopes):
        raise TokenError(f"it has a scope twice ({name})")
    return scopes


def _short(value: object) -> str:
    """A stranger's value for the log."""
    return "missing" if value is None else repr(value)[:_SHOWN]
