"""The store on ZooKeeper: addresses, access rights, and TLS."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.ports import free_port
from tests.store.conftest import Open
from tests.store.relay import Relay
from tests.support.certificates import Certificates
from tests.support.listening import Listener
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker.store.api import Create, EventKind, StoreEvent, StoreFailedError
from ottla_broker.store.digest_md5 import DigestError, DigestMd5
from ottla_broker.store.zookeeper import SaslUser, Tls, ZooKeeperSettings, ZooKeeperStore


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("", "zookeeper.connect=: '' is not HOST:PORT"),
        ("a:b:c", "'a:b:c' is not HOST:PORT"),
        ("a:0", "'a:0' is not HOST:PORT"),
        ("a:70000", "'a:70000' is not HOST:PORT"),
        ("a:1,,b:1", "'' is not HOST:PORT"),
        ("[::1:2181", r"'\[::1:2181' is not HOST:PORT"),
        ("a..b:1", "'a..b' is not a host name"),
        ("a:1/x//y", "'/x//y' is not a path in ZooKeeper"),
        ("a:1/x/../y", "is not a path in ZooKeeper"),
    ],
)
async def test_an_invalid_address_is_refused(address: str, line: str) -> None:
    with pytest.raises(StoreFailedError, match=line):
        await ZooKeeperStore.open(ZooKeeperSettings(address))


async def test_addresses_where_no_zookeeper_answers(relay: Relay) -> None:
    async def line(address: str) -> str:
        begun = time.monotonic()
        with pytest.raises(StoreFailedError) as caught:
            await ZooKeeperStore.open(
                ZooKeeperSettings(address, session_timeout_ms=18_000, connection_timeout_ms=1000)
            )
        # Much less than a session's timeout, for which kazoo would wait at each.
        assert time.monotonic() - begun < 9
        text = str(caught.value)
        assert f"no ZooKeeper answers at zookeeper.connect={address} within 1000 ms" in text
        assert "\n" not in text
        return text.rpartition("last: ")[2]

    threads = set(threading.enumerate())
    silent = await relay.start()
    relay.holding = True
    refused, _, _ = await asyncio.gather(
        line(f"127.0.0.1:{free_port()}"), line("no-such-host.invalid:2181"), line(silent)
    )
    assert refused == "Connection refused"
    relay.holding = False

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with Listener(answer) as server:
        assert "socket connection broken" in await line(server.address)
    await until(lambda: set(threading.enumerate()) <= threads)


async def test_one_host_of_several_is_enough(
    zookeeper: ZooKeeperProcess, relay: Relay, open_store: Open
) -> None:
    silent = await relay.start()
    relay.holding = True
    address = f"127.0.0.1:{free_port()},{silent}, {zookeeper.address}"
    for _ in range(3):
        store = await open_store(f"{address}/several", session_timeout_ms=6000)
        assert await store.exists("/")
    relay.holding = False


async def test_a_chroot_is_created_with_its_parents(open_store: Open, connect: str) -> None:
    await asyncio.gather(*(open_store(f"{connect}/deep/down/") for _ in range(3)))
    store = await open_store(f"{connect}/deep/down")
    assert await store.create("/a/b", b"1", parents=True) == "/a/b"
    assert (await store.transaction([Create("/a/s_", b"", False, True)]))[0] == "/a/s_0000000001"
    assert (await store.transaction([Create("/a/", b"", False, True)]))[0] == "/a/0000000002"
    assert await store.children("/") == ["a"]
    above = await open_store()
    assert await above.get("/deep/down/a/b") == (b"1", 0)
    events: list[StoreEvent] = []
    store.watch("/", events.append)
    await store.create("/c")
    # A change just after the watch was set may be reported twice.
    await until(lambda: StoreEvent(EventKind.CHILDREN, "/") in events)
    assert {event.path for event in events} == {"/"}


async def test_a_digest_user_owns_its_nodes(
    open_store: Open, connect: str, zookeeper: ZooKeeperProcess
) -> None:
    mine = await open_store(digest=("broker", "se:cret"), set_acl=True)
    for path in (
        "/consumers",
        "/config/users/u",
        "/config/brokers/1",
        "/config/topics/t",
        "/delegation_token/tokens",
    ):
        await mine.create(path, b"mine", parents=True)
    await mine.transaction([Create("/brokers"), Create("/config/users/v")])
    other = await open_store()
    assert await other.get("/config/topics/t") == (b"mine", 0)
    await other.create("/consumers/anybody")
    for path in ("/config/users/u", "/config/users/v", "/config/brokers/1", "/delegation_token/tokens"):
        with pytest.raises(StoreFailedError, match=f"{path} can't be accessed by this user"):
            await other.get(path)
    with pytest.raises(StoreFailedError, match="/config/topics/t can't be accessed by this user"):
        await other.set("/config/topics/t", b"theirs")
    with pytest.raises(StoreFailedError, match="/brokers/x can't be accessed"):
        await other.create("/brokers/x")
    wrong = await open_store(digest=("broker", "wrong"))
    with pytest.raises(StoreFailedError, match="can't be accessed"):
        await wrong.set("/config/topics/t", b"theirs")
    again = await open_store(digest=("broker", "se:cret"))
    assert await again.set("/config/topics/t", b"mine too") == 1


async def test_a_user_is_authenticated_again_after_a_reconnect(
    relay: Relay, open_store: Open, connect: str
) -> None:
    address = await relay.start()
    store = await open_store(f"{address}/{connect.partition('/')[2]}", digest=("broker", "x"), set_acl=True)
    await store.create("/a", b"0")
    relay.cut()
    assert await store.set("/a", b"1") == 1


async def test_acls_need_a_user(open_store: Open) -> None:
    await open_store()
    anonymous = await open_store(set_acl=True)
    with pytest.raises(StoreFailedError, match=r"has no user in ZooKeeper: see zookeeper\.set\.acl"):
        await anonymous.create("/a")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def secure(folder: Path, certificates: Certificates, server: str) -> tuple[ZooKeeperProcess, int]:
    port = free_port()
    users = folder / "jaas.conf"
    users.write_text(
        "Server { org.apache.zookeeper.server.auth.DigestLoginModule required"
        ' user_broker="se:cr\u00e9t" user_other="theirs"; };\n'
    )
    return ZooKeeperProcess(
        folder,
        settings={
            "secureClientPort": port,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": server,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": certificates.authority.replace(".crt", ".pem"),
            "ssl.trustStore.type": "PEM",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        },
        jvm=[f"-Djava.security.auth.login.config={users}"],
    ).start(), port


@pytest.fixture(scope="module")
def secured(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ZooKeeperProcess, int]]:
    """A ZooKeeper whose users log in by SASL, and its port with TLS, where it asks its clients for certificates."""
    (certificates.folder / "ours.pem").write_text(Path(certificates.authority).read_text())
    server, port = secure(tmp_path_factory.mktemp("secure"), certificates, certificates.server)
    yield server, port
    server.kill()


@pytest.fixture
def tls_port(secured: tuple[ZooKeeperProcess, int]) -> int:
    return secured[1]


def sasl(name: str, password: str) -> SaslUser:
    return SaslUser(name, password, lambda: "a nonce")


async def test_a_user_who_logs_in_by_sasl_owns_its_nodes(
    secured: tuple[ZooKeeperProcess, int], open_store: Open, certificates: Certificates
) -> None:
    server, tls_port = secured
    address = f"{server.address}/sasl"
    mine = await open_store(address, sasl=sasl("broker", "se:cr\u00e9t"), set_acl=True)
    await mine.create("/config/users/u", b"mine", parents=True)
    await mine.create("/a", b"mine")
    other = await open_store(address, sasl=sasl("other", "theirs"))
    assert await other.get("/a") == (b"mine", 0)
    for store in (other, await open_store(address)):
        with pytest.raises(StoreFailedError, match="/a can't be accessed by this user"):
            await store.set("/a", b"theirs")
        with pytest.raises(StoreFailedError, match="/config/users/u can't be accessed by this user"):
            await store.get("/config/users/u")
    over_tls = f"localhost:{tls_port}/sasl"
    again = await open_store(
        over_tls, sasl=sasl("broker", "se:cr\u00e9t"), tls=Tls(certificates.authority, certificates.broker)
    )
    assert await again.set("/a", b"mine too") == 1


@pytest.mark.parametrize(("name", "password"), [("broker", "wrong"), ("nobody", "se:cr\u00e9t")])
async def test_a_wrong_login_by_sasl_ends_the_session(
    secured: tuple[ZooKeeperProcess, int], open_store: Open, name: str, password: str
) -> None:
    with pytest.raises(
        StoreFailedError, match=f"refused the session of zookeeper.sasl.user={name}; last: the"
    ):
        await open_store(secured[0].address, sasl=sasl(name, password))


def test_the_digest_of_rfc_2831() -> None:
    """The example of its section 4."""
    login = DigestMd5("chris", "secret", "OA6MHXh6VqTrRk", "imap/elwood.innosoft.com")
    challenge = (
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    )
    answer = login.respond(challenge).decode()
    assert "response=d388dad90d4bbd760a152321f2143af7," in answer
    login.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    with pytest.raises(DigestError, match="doesn't know the password"):
        login.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffe")


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"", "isn't one of DIGEST-MD5"),
        (b'nonce="x"', "isn't one of DIGEST-MD5"),
        (b'nonce="x",algorithm=md5-sess,qop="auth-conf"', "wants more"),
        (b'nonce="x', "can't be parsed"),
        (b"\xff", "isn't text"),
        (b"a=b," * 1000, "too long"),
    ],
)
def test_challenges_that_make_no_sense(challenge: bytes, message: str) -> None:
    with pytest.raises(DigestError, match=message):
        DigestMd5("u", "p", "n").respond(challenge)


async def test_tls_with_certificates_on_both_sides(
    tls_port: int, certificates: Certificates, open_store: Open
) -> None:
    tls = Tls(certificates.authority, certificates.broker)
    store = await open_store(f"localhost:{tls_port}/tls", tls=tls, set_acl=True)
    await store.create("/a", b"1")
    # Answers that arrive together are all read.
    assert await asyncio.gather(*(store.get("/a") for _ in range(500))) == [(b"1", 0)] * 500
    await store.create("/large", bytes(1_000_000))
    assert len((await store.get("/large"))[0]) == 1_000_000
    events: list[StoreEvent] = []
    store.watch("/a", events.append)
    await store.set("/a", b"2")
    await until(lambda: bool(events))
    locked = await open_store(
        f"127.0.0.1:{tls_port}/tls", tls=Tls(certificates.authority, certificates.locked, "secret")
    )
    assert await locked.get("/a") == (b"2", 1)
    # Another certificate is another user.
    with pytest.raises(StoreFailedError, match="/a can't be accessed"):
        await locked.set("/a", b"3")


async def test_tls_that_fails_says_why(tls_port: int, certificates: Certificates, tmp_path: Path) -> None:
    async def line(tls: Tls | None, timeout: int = 1000) -> str:
        with pytest.raises(StoreFailedError) as caught:
            await ZooKeeperStore.open(
                ZooKeeperSettings(f"localhost:{tls_port}", connection_timeout_ms=timeout, tls=tls)
            )
        return str(caught.value)

    trusted = certificates.authority
    # The system's authorities don't know the certificate either.
    unknown = [Tls(certificates.another, certificates.broker), Tls(None, certificates.broker)]
    refused = [Tls(trusted, certificates.stranger), Tls(trusted), None]
    for text in await asyncio.gather(*(line(tls, 3000) for tls in unknown)):
        assert "certificate verify failed" in text
    for text in await asyncio.gather(*map(line, refused)):
        assert "no ZooKeeper answers" in text
    place = f"zookeeper.ssl.keystore.location={certificates.locked}: "
    assert (await line(Tls(trusted, certificates.locked))).startswith(place)
    assert (await line(Tls(trusted, certificates.locked, "wrong"))).startswith(place)
    missing = str(tmp_path / "none")
    assert "No such file or directory; it must be a PEM file" in await line(Tls(missing))
    assert "No such file or directory; it must be a PEM file" in await line(Tls(trusted, missing))
    (tmp_path / "nonsense").write_text("nonsense")
    assert "zookeeper.ssl.truststore.location" in await line(Tls(str(tmp_path / "nonsense")))


async def test_a_certificate_for_another_host(
    tls_port: int, certificates: Certificates, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name leads to a ZooKeeper whose certificate doesn't have it."""
    resolve = socket.getaddrinfo

    def resolved(host: str, *rest: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host == "elsewhere.test" else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    address = f"elsewhere.test:{tls_port}"
    tls = Tls(certificates.authority, certificates.broker)
    with pytest.raises(StoreFailedError, match="Hostname mismatch"):
        await open_store(address, connection_timeout_ms=6000, tls=tls)
    store = await open_store(address, tls=replace(tls, verify_hostname=False))
    assert await store.exists("/")
