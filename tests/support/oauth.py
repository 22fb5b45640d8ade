"""An OAuth provider: keys, tokens that it signs, and a server that hands out both."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

AUDIENCE = "kafka"
SECRET = "client secret"


class Provider:
    """Signs tokens by ES256.

    Attributes:
        port: where its server listens, while it does.
        asked: the scopes of the requests for tokens.
        lifetime: of the tokens that its server hands out, in seconds.
    """

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[str] = []
        self.lifetime = 300
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def issuer(self) -> str:
        return "https://id.test"

    def jwks(self) -> dict[str, Any]:
        public = jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": "one", "use": "sig"}]}

    def token(self, user: str, lifetime: float = 300, **changes: Any) -> str:
        now = time.time()
        claims = {"sub": user, "iss": self.issuer, "aud": AUDIENCE, "iat": now, "exp": now + lifetime}
        return jwt.encode({**claims, **changes}, self._key, "ES256", headers={"kid": "one"})

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve ``/jwks`` and ``/token``."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        self.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/redirect":
                self.send_response(302)
                self.send_header("Location", f"{provider.url}/jwks")
                self.end_headers()
                return
            self.answer(200 if self.path == "/jwks" else 404, provider.jwks())

        def do_POST(self) -> None:
            body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            user, _, secret = b64decode(self.headers["Authorization"].split()[1]).decode().partition(":")
            if secret != SECRET:
                self.answer(401, {"error": "invalid_client"})
                return
            provider.asked.append(body.get("scope", [""])[0])
            token = provider.token(user, provider.lifetime)
            answer = {"access_token": token, "expires_in": provider.lifetime, "token_type": "Bearer"}
            self.answer(200, answer)

        def answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
