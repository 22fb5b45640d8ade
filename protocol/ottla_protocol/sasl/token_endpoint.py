"""Tokens of an OAuth provider by the client credentials grant (RFC 6749, KIP-768), without sockets.

::

    POST path                                          Authorization: Basic base64(id ":" secret)
    grant_type=client_credentials[&scope=…]            → {"access_token": …, "expires_in": seconds, …}
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Final, NamedTuple
from urllib.parse import urlencode

from ..http_client import Address, HttpError, HttpExchange
from .mechanism import SaslError
from .oauthbearer import TOKEN

RENEWED: Final = 0.8
"""The share of a token's life after which to get another (``sasl.login.refresh.window.factor``)."""
_LEAST_SECONDS: Final = 1.0
_TRIED_AGAIN: Final = frozenset((408, 429, 500, 502, 503, 504))


class Credentials(NamedTuple):
    """A client's credentials for its OAuth provider."""

    client_id: str
    client_secret: str
    scope: str = ""


class RetriableError(HttpError):
    """The provider may answer when it is asked again."""


def token_request(address: Address, credentials: Credentials) -> HttpExchange:
    """The request for a token."""
    user = f"{credentials.client_id}:{credentials.client_secret}"
    body = {"grant_type": "client_credentials", **({"scope": credentials.scope} if credentials.scope else {})}
    headers = {
        "Authorization": f"Basic {b64encode(user.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return HttpExchange(address, "POST", headers, urlencode(body).encode())


def read_token(http: HttpExchange) -> tuple[str, float]:
    """The token in a response, and the seconds until it is to be renewed; 0 if the response has no lifetime.

    Raises HttpError: without the response's text, which may have secrets, except for OAuth's error code.
    """
    where, status = f"the token endpoint {http.address.where}", http.status
    try:
        found = json.loads(http.body)
    except (ValueError, RecursionError):
        found = None
    if status != 200:
        error = found.get("error") if isinstance(found, dict) else None
        what = f"{where} answers {status}" + (f" ({str(error)[:64]!r})" if error else "")
        raise RetriableError(what) if status in _TRIED_AGAIN else HttpError(what)
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str) or not token.strip():
        raise HttpError(f"{where}: its response has no access_token")
    seconds = found.get("expires_in")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > _LEAST_SECONDS:
        return checked(token), 0.0
    return checked(token), min(float(seconds), 1e9) * RENEWED


def checked(token: str) -> str:
    """A token, stripped. Raises SaslError for a text that can't be one."""
    token = token.strip()
    if TOKEN.fullmatch(token) is None:
        raise SaslError(
            "the token is malformed: parts in URL-safe base64, with dots between them, are needed"
        )
    return token
