"""Logging in at an OpenID Connect provider, whose tokens the cluster accepts; and logins that must not succeed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import jwt
import pytest
from harness.ports import free_port
from tests.console.browsing import Browser, browsing
from tests.support.oauth import AUDIENCE
from tests.support.oidc import SECRET, Site
from tests.support.processes import BrokerProcess

from ottla_client.errors import ConfigurationError
from ottla_console.oidc import OidcError, OidcProvider, OidcSettings, UserTokens
from ottla_console.settings import WebSettings

pytestmark = pytest.mark.ottla_only

LOGIN: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    """A provider, and the address of a broker that accepts its tokens: alice may do everything, bob nothing."""
    site, port = Site(), free_port()
    folder = tmp_path_factory.mktemp("oidc")
    keys = folder / "keys.json"
    keys.write_text(json.dumps(site.jwks()))
    broker = BrokerProcess(
        folder / "data",
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": site.issuer,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "connection.failed.authentication.delay.ms": 10,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
        },
    )
    broker.settings["listeners"] = f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://127.0.0.1:{port}"
    broker.start()
    yield site, f"127.0.0.1:{port}"
    broker.kill()


@pytest.fixture
async def site(cluster: tuple[Site, str]) -> AsyncIterator[Site]:
    site = cluster[0]
    site.user, site.claims, site.answers = "alice", {}, {}
    async with site.open():
        yield site


@pytest.fixture
async def browser(cluster: tuple[Site, str], site: Site, tmp_path: Path) -> AsyncIterator[Browser]:
    settings = site.settings()
    async with browsing(cluster[1], LOGIN, oidc=settings, audit_log=str(tmp_path / "audit")) as opened:
        yield opened


async def test_a_person_logs_in_with_the_rights_of_the_token(
    site: Site, browser: Browser, tmp_path: Path
) -> None:
    asked = await browser.get("/topics?q=a")
    assert "/login/provider?next=%2Ftopics%3Fq%3Da" in asked.text
    site.claims = {"preferred_username": "Alice <A>"}
    page = await browser.get("/login/provider?next=/topics")
    assert (page.status, "<h1>Topics</h1>" in page.text) == (200, True), page.text
    assert "Alice &lt;A&gt; (alice)" in page.text
    csrf = page.hidden["csrf"]
    proposed = await browser.post("/quotas/set", csrf=csrf, user="eve", key="request_percentage", value="5")
    assert (await browser.post("/confirm", **proposed.hidden)).status == 200
    await browser.post("/logout", csrf=csrf)
    assert (await browser.get("/topics", allow_redirects=False)).status == 303
    site.user, site.claims = "bob", {}
    page = await browser.get("/login/provider")
    assert ("bob" in page.text, (await browser.get("/quotas")).status) == (True, 403)
    log = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(line["event"], line["user"]) for line in log] == [
        ("login", "Alice <A> (alice)"),
        ("change", "Alice <A> (alice)"),
        ("outcome", "Alice <A> (alice)"),
        ("login", "bob"),
    ]


UNSIGNED = jwt.encode({"sub": "alice"}, None, "none")
BY_SECRET = jwt.encode({"sub": "alice"}, "k" * 32, "HS256")


@pytest.mark.parametrize(
    ("claims", "answers", "why"),
    [
        ({"nonce": "other"}, {}, "another login"),
        ({"aud": "other"}, {}, "Audience"),
        ({"aud": ["console", "other"]}, {}, "azp"),
        ({"azp": "other"}, {}, "azp"),
        ({"iss": "https://other"}, {}, "issuer"),
        ({"exp": 1}, {}, "expired"),
        ({}, {"token": {"id_token": UNSIGNED}}, "algorithm"),
        ({}, {"token": {"id_token": BY_SECRET}}, "algorithm"),
        ({}, {"token": {"id_token": "a.b.c"}}, "isn&#39;t valid"),
        ({}, {"token": {"id_token": None}}, "no ID token"),
        ({}, {"token": {"access_token": ""}}, "no access token"),
        ({}, {"token": {"access_token": BY_SECRET}}, "The cluster refuses"),
        ({}, {"keys": {"keys": []}}, "doesn&#39;t publish"),
        ({}, {"keys": {"keys": "none"}}, "keys can&#39;t be read"),
        ({}, {"authorize": {"error": "access_denied"}}, "access_denied"),
        ({}, {"authorize": {"iss": "https://other"}}, "nother provider answers"),
        ({}, {"authorize": {"state": "other"}}, "wasn&#39;t begun in this browser"),
        ({}, {"described": {"issuer": "https://other"}}, "give it as --oidc-issuer"),
        ({}, {"described": {"token_endpoint": "http://example.com/"}}, "isn&#39;t an https: URL"),
    ],
)
async def test_no_one_is_logged_in(
    site: Site, browser: Browser, claims: dict[str, Any], answers: dict[str, dict[str, Any]], why: str
) -> None:
    site.claims, site.answers = claims, answers
    page = await browser.get("/login/provider")
    assert (page.status in (401, 502), why in page.text) == (True, True), page.text
    assert (await browser.get("/topics", allow_redirects=False)).status == 303


async def test_only_the_browser_that_began_a_login_finishes_it_once(site: Site, browser: Browser) -> None:
    started = await browser.get("/login/provider", allow_redirects=False)
    back = await browser.get("/login/provider", allow_redirects=False)
    state = _state(started)
    browser.forget()
    stolen = await browser.get(f"/login/callback?code=x&state={state}")
    assert (stolen.status, "wasn&#39;t begun" in stolen.text) == (401, True)
    again = await browser.get(f"/login/callback?code=x&state={_state(back)}")
    assert again.status == 401
    assert (await browser.post("/login", user="a", password="b", headers=None)).status == 200


async def test_strangers_who_begin_logins_end_no_one_elses(site: Site) -> None:
    provider = OidcProvider(OidcSettings(issuer=site.issuer, client_id="console", secret=SECRET))
    try:
        started = await provider.begin("http://console/login/callback", "/topics")
        others = [await provider.begin("http://console/login/callback", "/" * 5_000) for _ in range(1_100)]
        assert all(len(other.cookie) < 2_000 for other in others)
        asked = dict(parse_qsl(urlsplit(started.url).query))
        site.codes["c"] = asked
        query = {"code": "c", "state": asked["state"]}
        for cookie in ("", "a.b", started.cookie[:-1], f"{started.cookie}x", "\udc80.", others[0].cookie):
            with pytest.raises(OidcError, match="begun in this browser"):
                await provider.finish(query, cookie)
        person = await provider.finish(query, started.cookie)
        assert (person.name, person.next) == ("alice", "/topics")
        with pytest.raises(OidcError, match="begun in this browser"):
            await provider.finish(query, started.cookie)
    finally:
        await provider.close()


def _state(page: Any) -> str:
    return parse_qs(urlsplit(page.headers["Location"]).query)["state"][0]


async def test_a_provider_that_is_down(cluster: tuple[Site, str]) -> None:
    settings = OidcSettings(issuer=f"http://127.0.0.1:{free_port()}", client_id="console")
    async with browsing(cluster[1], LOGIN, oidc=settings) as browser:
        page = await browser.get("/login/provider")
        assert (page.status, "can&#39;t be reached" in page.text) == (502, True)


class Refreshing:
    """A provider that gives another token, or none."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)

    async def refreshed(self, token: str) -> dict[str, Any]:
        if not self.answers:
            raise OidcError("no")
        return self.answers.pop(0)


async def test_tokens_are_refreshed_in_time() -> None:
    provider: Any = Refreshing({"access_token": "b", "expires_in": 10, "refresh_token": "s"})
    tokens = UserTokens(provider, {"access_token": "a", "expires_in": 10, "refresh_token": "r"})
    assert await tokens.token() == "b"
    assert await tokens.token() == "b"  # the provider fails, and the token is still good
    assert not tokens.ended
    tokens = UserTokens(provider, {"access_token": "a", "expires_in": 1e-9, "refresh_token": "r"})
    with pytest.raises(OidcError):
        await tokens.token()
    assert tokens.ended
    tokens = UserTokens(provider, {"access_token": "a", "expires_in": 3600})
    assert (await tokens.token(), tokens.ended) == ("a", False)


def test_settings_that_contradict() -> None:
    for options in (
        {"issuer": "http://id.example.com", "client_id": "c"},
        {"issuer": "https://id.example.com", "client_id": ""},
        {"issuer": "id.example.com", "client_id": "c"},
    ):
        with pytest.raises(ConfigurationError):
            OidcSettings(**options)
    oidc = OidcSettings(issuer="https://id.example.com", client_id="c", scope="openid kafka")
    assert oidc.scopes == "openid kafka"
    assert WebSettings(client=LOGIN, oidc=oidc).logs_in
    for client in (
        {},
        {**LOGIN, "sasl_mechanism": "PLAIN"},
        {**LOGIN, "sasl_oauthbearer_token_endpoint_url": "https://id.example.com/token"},
    ):
        with pytest.raises(ConfigurationError):
            WebSettings(client=client, oidc=oidc)
