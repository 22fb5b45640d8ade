"""An OpenID Connect provider at which the console logs people in."""

from __future__ import annotations

import hashlib
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.test_utils import TestServer
from harness.ports import free_port
from tests.support.oauth import Provider

from ottla_console.oidc import OidcSettings

SECRET = "a secret: with % signs"


class Site(Provider):
    """A provider at which everyone is logged in as ``user`` already.

    ``claims`` change the ID token, ``answers`` what its endpoints answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self.user = "alice"
        self.claims: dict[str, Any] = {}
        self.answers: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}

    @property
    def issuer(self) -> str:
        return self.url

    async def described(self, request: web.Request) -> web.Response:
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.url}/authorize?realm=main",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }
        return web.json_response({**found, **self.answers.get("described", {})})

    async def authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        assert (query["realm"], query["response_type"], query["scope"]) == ("main", "code", "openid profile")
        assert query["code_challenge_method"] == "S256"
        code = f"code {len(self.codes)}"
        self.codes[code] = query
        back = {
            "code": code,
            "state": query["state"],
            "iss": self.issuer,
            **self.answers.get("authorize", {}),
        }
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(back)}")

    async def token_endpoint(self, request: web.Request) -> web.Response:
        form = await request.post()
        pair = b64decode(request.headers["Authorization"].split()[1]).decode()
        assert pair == "console:a+secret%3A+with+%25+signs"
        asked = self.codes.pop(str(form["code"]))
        digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        assert urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
        assert form["redirect_uri"] == asked["redirect_uri"]
        claims = {"aud": "console", "nonce": asked["nonce"], **self.claims}
        found = {
            "access_token": self.token(self.user),
            "id_token": self.token(claims.pop("sub", self.user), **claims),
            "expires_in": 300,
            "token_type": "Bearer",
        }
        return web.json_response({**found, **self.answers.get("token", {})})

    async def keys(self, request: web.Request) -> web.Response:
        return web.json_response({**self.jwks(), **self.answers.get("keys", {})})

    def settings(self) -> OidcSettings:
        """Those of a console that people log in to here."""
        return OidcSettings(issuer=self.issuer, client_id="console", secret=SECRET, scope="profile")

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self.described)
        app.router.add_get("/authorize", self.authorize)
        app.router.add_post("/token", self.token_endpoint)
        app.router.add_get("/keys", self.keys)
        async with TestServer(app, port=self.port):
            yield
