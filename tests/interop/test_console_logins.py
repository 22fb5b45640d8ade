"""The console's logins at Apache Kafka 3.9.1: by password and at a provider, with the rights of Kafka's own lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from harness.brokers import HOST, Kafka, running
from harness.java import Unavailable
from harness.ports import free_port
from tests.console.browsing import Browser, browsing
from tests.support.oauth import AUDIENCE
from tests.support.oidc import Site

from ottla_client import Admin
from ottla_client.admin import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    NewTopic,
    ResourcePattern,
)

_SECURITY = "org.apache.kafka.common.security"


class Secured(NamedTuple):
    """A broker where alice may do everything, and others what lists allow; ``login`` is where people log in."""

    open: str
    login: str
    site: Site


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, site = tmp_path_factory.mktemp("secured-kafka"), Site()
    keys = folder / "keys.json"
    keys.write_text(json.dumps(site.jwks()))
    plain, sasl, controller = free_port(), free_port(), free_port()
    bearer = f"{_SECURITY}.oauthbearer"
    prefix = "listener.name.people"
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:{plain},PEOPLE://{HOST}:{sasl},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},PEOPLE://{HOST}:{sasl}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PEOPLE:SASL_PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        f"{prefix}.sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_SECURITY}.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{bearer}.OAuthBearerLoginModule required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{bearer}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{prefix}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{prefix}.sasl.oauthbearer.expected.issuer": site.issuer,
    }
    with ExitStack() as stack:
        try:
            stack.enter_context(running(Kafka(folder / "kafka", settings, plain)))
        except Unavailable as missing:
            pytest.skip(str(missing))
        yield Secured(f"{HOST}:{plain}", f"{HOST}:{sasl}", site)


async def prepared(kafka: Secured) -> None:
    """A topic that only alice sees, one that bob may read, and their passwords."""
    async with Admin(kafka.open) as admin:
        for user in ("alice", "bob"):
            await admin.set_password(user, f"{user}-secret")
        there = await admin.list_topics()
        await admin.create_topics([NewTopic(each, 1) for each in ("payroll", "menu") if each not in there])
        entry = AclEntry("User:bob", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
        await admin.create_acls([AclBinding(ResourcePattern(AclResource.TOPIC, "menu"), entry)])


async def sees(browser: Browser) -> list[str]:
    text = (await browser.get("/topics")).text
    return [name for name in ("menu", "payroll") if name in text]


async def test_people_log_in_by_scram(kafka: Secured) -> None:
    await prepared(kafka)
    client: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}
    async with browsing(kafka.login, client) as browser:
        asked = await browser.get("/topics", allow_redirects=False)
        assert (asked.status, asked.headers["Location"]) == (303, "/login?next=/topics")
        wrong = await browser.post("/login", user="bob", password="alice-secret")
        assert (wrong.status, "refuses" in wrong.text) == (401, True)
        page = await browser.post("/login?next=/topics", user="bob", password="bob-secret")
        assert (page.status, await sees(browser)) == (200, ["menu"])
        assert (await browser.get("/topics/payroll")).status in (403, 404)
        await browser.post("/logout", csrf=page.hidden["csrf"])
        page = await browser.post("/login?next=/", user="alice", password="alice-secret")
        assert (page.status, await sees(browser)) == (200, ["menu", "payroll"])


async def test_people_log_in_at_a_provider(kafka: Secured) -> None:
    await prepared(kafka)
    client: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    site = kafka.site
    async with site.open(), browsing(kafka.login, client, oidc=site.settings()) as browser:
        assert "/login/provider?next=%2Ftopics" in (await browser.get("/topics")).text
        site.user = "bob"
        page = await browser.get("/login/provider?next=/topics")
        assert (page.status, await sees(browser)) == (200, ["menu"])
        await browser.post("/logout", csrf=page.hidden["csrf"])
        site.user = "alice"
        page = await browser.get("/login/provider?next=/")
        assert (page.status, await sees(browser)) == (200, ["menu", "payroll"])
        await browser.post("/logout", csrf=page.hidden["csrf"])
        site.answers = {"token": {"access_token": Site().token("alice")}}
        refused = await browser.get("/login/provider")
        assert (refused.status in (401, 502), "The cluster refuses" in refused.text) == (True, True)
