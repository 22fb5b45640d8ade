"""Connections over TLS, and what clients can do before, during and after the handshake."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.network.serving import Client, Handle, client, echo, exchange_at_once, framed, serving
from tests.support.certificates import Certificates
from tests.support.key_updates import KeyUpdatingClient
from tests.support.waiting import until

from ottla_broker import events
from ottla_broker.client_threads import ClientThreads
from ottla_broker.config import BrokerConfig
from ottla_broker.log.files import Files, FileSlice
from ottla_broker.network import backlog, tls_handshake, tls_socket
from ottla_broker.network.acceptor import Acceptor
from ottla_broker.network.connection import Connection
from ottla_broker.network.service import Reply
from ottla_broker.network.tls_handshake import TlsListener
from ottla_broker.network.tls_settings import TlsContexts, TlsError, TlsSettings
from ottla_broker.network.tls_socket import TlsSocket


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def log() -> Iterator[Callable[[], list[dict[str, object]]]]:
    out = io.StringIO()
    events.configure(stream=out, json=True)
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    events.configure()


def settings_of(settings: Mapping[str, object]) -> TlsSettings:
    config = BrokerConfig.from_properties(
        {"listeners": "SSL://127.0.0.1:0", **{name: str(value) for name, value in settings.items()}}
    )
    return TlsSettings.of(config, "SSL")


@contextmanager
def tls_listener(certificates: Certificates, **settings: object) -> Iterator[TlsListener]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    threads = ClientThreads()
    contexts = TlsContexts(
        settings_of({"ssl.keystore.location": certificates.server, **given}), TlsSettings.server
    )
    try:
        yield TlsListener(contexts, threads)
    finally:
        threads.close()


@asynccontextmanager
async def tls_serving(
    certificates: Certificates, handle: Handle = echo, max_request: int = 1 << 20, **settings: object
) -> AsyncIterator[Acceptor]:
    with tls_listener(certificates, **settings) as listener:
        async with serving(handle, tls=listener, max_request=max_request) as acceptor:
            yield acceptor


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("size", [0, 5000, 16_380, 16_384, 262_140, 262_141, 3_000_000])
async def test_frames_of_any_size(certificates: Certificates, version: str, size: int) -> None:
    big = os.urandom(size)
    async with (
        tls_serving(certificates, max_request=4_000_000, ssl_enabled_protocols=version) as acceptor,
        client(acceptor, certificates.shown(None)) as c,
    ):
        for _ in range(3):
            c.send(b"before", big, b"after", big, b"")
            assert [await c.receive() for _ in range(5)] == [b"before", big, b"after", big, b""]


async def test_requests_pipelined_by_the_thousand_are_answered_in_order(certificates: Certificates) -> None:
    bodies = [b"%d" % i * (i % 40) for i in range(5000)]
    async with tls_serving(certificates) as acceptor, client(acceptor, certificates.shown(None)) as c:
        c.send(*bodies)
        assert [await c.receive() for _ in bodies] == bodies


async def test_connections_that_wait_because_the_loop_is_late_are_served(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "LATE_SECONDS", -1.0)
    async with AsyncExitStack() as stack:
        acceptor = await stack.enter_async_context(tls_serving(certificates))
        shown = certificates.shown(None)
        clients = [await stack.enter_async_context(client(acceptor, shown)) for _ in range(8)]
        await exchange_at_once(clients)


async def test_a_goodbye_that_comes_with_data_closes_the_connection(certificates: Certificates) -> None:
    def leave(port: int) -> bool:
        with socket.create_connection(("127.0.0.1", port), 60) as sock:
            received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = certificates.shown(None).wrap_bio(received, sent, server_hostname="localhost")
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    sock.sendall(sent.read())
                    received.write(sock.recv(65536))
            tls.write(framed(b"x" * 5000))
            with suppress(ssl.SSLWantReadError):
                tls.unwrap()
            sock.sendall(sent.read())
            while sock.recv(65536):
                pass
            return True

    async with tls_serving(certificates, lambda connection, frame: None) as acceptor:
        assert await asyncio.to_thread(leave, acceptor.port)
        assert not any(each.connections for each in acceptor.processors)


async def test_files_are_sent_to_slow_readers(certificates: Certificates, tmp_path: Path) -> None:
    data = os.urandom(5_000_000)
    path = tmp_path / "segment"
    path.write_bytes(data)
    file = Files().file(str(path))

    def handle(connection: Connection, frame: memoryview) -> Reply:
        start, size = struct.unpack(">ii", frame)
        head, tail = b"head" * 100, b"tail" * 100
        body = FileSlice(file, start, size)
        return [struct.pack(">i", len(head) + size + len(tail)), head, body, tail]

    try:
        async with (
            tls_serving(certificates, handle) as acceptor,
            client(acceptor, certificates.shown(None)) as c,
        ):
            parts = [(0, 5_000_000), (17, 3_333_333), (4_999_999, 1)] * 2
            c.send(*[struct.pack(">ii", *part) for part in parts])
            await asyncio.sleep(0.05)  # the socket's buffers fill up meanwhile
            for start, size in parts:
                assert await c.receive() == b"head" * 100 + data[start : start + size] + b"tail" * 100
    finally:
        file.close()


async def test_principals(certificates: Certificates) -> None:
    def who(connection: Connection, frame: memoryview) -> Reply:
        return [framed(":".join(connection.principal).encode())]

    rules = "RULE:^CN=(bro.*)$/$1-x/U,DEFAULT"
    for auth, shown, expected in (
        ("none", "broker", b"User:ANONYMOUS"),
        ("requested", None, b"User:ANONYMOUS"),
        ("requested", "broker", b"User:BROKER-X"),
        ("required", "elsewhere", b"User:CN=elsewhere"),
    ):
        async with (
            tls_serving(
                certificates,
                who,
                ssl_client_auth=auth,
                ssl_truststore_location=certificates.authority,
                ssl_principal_mapping_rules=rules,
            ) as acceptor,
            client(acceptor, certificates.shown(shown)) as c,
        ):
            c.send(b"")
            assert await c.receive() == expected


Log = Callable[[], list[dict[str, object]]]


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (None, "certificate"),
        ("stranger", "certificate is refused"),
        ("expired", "certificate is refused: certificate has expired"),
    ],
)
async def test_missing_and_foreign_certificates_are_refused(
    certificates: Certificates, log: Log, shown: str | None, reason: str
) -> None:
    async with tls_serving(
        certificates, ssl_client_auth="required", ssl_truststore_location=certificates.authority
    ) as acceptor:
        with suppress(ssl.SSLError, ConnectionError):
            async with client(acceptor, certificates.shown(shown)) as c:
                assert await c.closed()
        await until(lambda: len(log()) >= 1)
        assert [line["event"] for line in log()] == ["TLS handshake failed"]
        assert reason in str(log()[0]["reason"])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (framed(b"\x00\x12\x00\x03" + bytes(20)), "speaks no TLS"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "speaks HTTP"),
        (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", "doesn't begin with a ClientHello"),
        (b"\x16\x03\x01\x40\x00\x01\x01\x00\x00" + bytes(100), "ClientHello is too large"),
        (b"\x16\x03\x01\x00\x20\x01\x00\x00\x1c\x03\x03" + bytes(30), ""),
        (b"\x16\x03\x01\x40\x00\x01\x00\x80\x00\x03\x03" + bytes(100_000), ""),
    ],
)
async def test_what_is_no_handshake_is_closed_with_one_line(
    certificates: Certificates, log: Log, data: bytes, reason: str
) -> None:
    async with tls_serving(certificates) as acceptor:
        async with client(acceptor) as c:
            c.writer.write(data)
            while True:
                try:
                    if not await asyncio.wait_for(c.reader.read(1000), 60):
                        break
                except ConnectionError:
                    break
        await until(lambda: len(log()) >= 1)
        (line,) = log()
        assert line["event"] == "TLS handshake failed"
        assert reason in str(line["reason"])
        assert "exception" not in line
        async with client(acceptor, certificates.shown(None)) as c:
            c.send(b"well")
            assert await c.receive() == b"well"


async def test_half_handshakes_are_given_up(
    certificates: Certificates, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_SECONDS", 0.2)
    async with tls_serving(certificates) as acceptor:
        for data in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"):
            async with client(acceptor) as c:
                c.writer.write(data)
                assert await c.closed()
        await until(lambda: len(log()) == 3)
        assert {line["reason"] for line in log()} == {"it was not finished within 0.2 s"}


async def test_clients_that_leave_are_not_logged(certificates: Certificates, log: Log) -> None:
    with tls_listener(certificates) as listener:
        async with serving(echo, tls=listener) as acceptor:
            for data in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"):
                async with client(acceptor) as c:
                    c.writer.write(data)
                    await c.writer.drain()
            async with client(acceptor, certificates.shown(None)) as c:
                c.send(b"last")
                await c.receive()
            await until(
                lambda: not listener.handshakes and not any(p.connections for p in acceptor.processors)
            )
        assert log() == []


async def test_renegotiation_is_refused(certificates: Certificates) -> None:
    async with tls_serving(certificates, ssl_enabled_protocols="TLSv1.2") as acceptor:
        asked = await asyncio.create_subprocess_exec(
            *(
                "openssl",
                "s_client",
                "-connect",
                f"127.0.0.1:{acceptor.port}",
                "-tls1_2",
                "-legacy_renegotiation",
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(asked.communicate(b"R\n"), 60)
        assert b"RENEGOTIATING" in out
        assert b"no renegotiation" in out.lower() or b"error" in out.lower()
        async with client(acceptor, certificates.shown(None)) as c:
            c.send(b"well")
            assert await c.receive() == b"well"


@pytest.mark.parametrize("answered", [False, True])
async def test_a_client_that_updates_its_keys_thousands_of_times_takes_turns(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """One call of OpenSSL would read all of them: it goes on until there is data."""
    reads = 0
    receive = TlsSocket.recv_into

    def recv_into(sock: TlsSocket, buffer: memoryview, size: int = 0) -> int:
        nonlocal reads
        reads += 1
        return receive(sock, buffer, size)

    monkeypatch.setattr(TlsSocket, "recv_into", recv_into)
    async with tls_serving(certificates, ssl_enabled_protocols="TLSv1.3") as acceptor:
        hostile = await asyncio.to_thread(
            KeyUpdatingClient, acceptor.port, certificates.shown(None), tmp_path / "keys"
        )
        try:
            updates = hostile.key_updates(1000, answered=answered) + hostile.record(framed(b"done"))
            sending = asyncio.create_task(asyncio.to_thread(hostile.send, updates))
            async with client(acceptor, certificates.shown(None)) as bystander:
                bystander.send(b"well")
                assert await bystander.receive() == b"well"
            answer = b""
            while not answer.endswith(b"done"):
                answer += await asyncio.to_thread(hostile.tls.recv, 100)
            await sending
        finally:
            hostile.close()
    assert reads > 1000


def test_a_client_that_does_not_take_new_keys_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_socket, "clear_auto_retry", Mock())
    stuck = Mock()
    stuck.recv_into.side_effect = ssl.SSLWantWriteError
    sock = TlsSocket(stuck)
    for _ in range(1000):
        with pytest.raises(BlockingIOError):
            sock.recv_into(memoryview(bytearray(10)))
    with pytest.raises(ConnectionResetError, match="doesn't take"):
        sock.recv_into(memoryview(bytearray(10)))


async def test_reloaded_certificates_are_for_new_connections(certificates: Certificates) -> None:
    def name_of(c: Client) -> object:
        return dict(*c.writer.get_extra_info("peercert")["subject"])["commonName"]

    trusting = certificates.shown(None)
    trusting.check_hostname = False
    with tls_listener(certificates) as listener:
        async with serving(echo, tls=listener) as acceptor, client(acceptor, trusting) as old:
            listener.contexts.reload(settings_of({"ssl.keystore.location": certificates.elsewhere}))
            async with client(acceptor, trusting) as new:
                assert (name_of(old), name_of(new)) == ("server", "elsewhere")
            old.send(b"on")
            assert await old.receive() == b"on"


async def test_closing_ends_handshakes(certificates: Certificates) -> None:
    with tls_listener(certificates) as listener:
        async with serving(echo, tls=listener) as acceptor, client(acceptor) as c:
            c.writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
            await until(lambda: len(listener.handshakes) == 1)
            await acceptor.close()
            assert await c.closed()


def keystores(certificates: Certificates) -> dict[str, str]:
    folder = certificates.folder
    made = {name: str(folder / f"{name}.p12") for name in ("server", "trust")}
    if not Path(made["server"]).exists():
        run = ["openssl", "pkcs12", "-export", "-passout", "pass:secret"]
        subprocess.run([*run, "-in", certificates.server, "-out", made["server"]], check=True, timeout=60)
        subprocess.run(
            [*run, "-nokeys", "-in", certificates.authority, "-out", made["trust"]], check=True, timeout=60
        )
    (folder / "old.jks").write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    (folder / "key.pem").write_bytes((folder / "server.key").read_bytes())
    return made


@pytest.mark.parametrize("inline", [True, False])
async def test_stores_of_every_kind(certificates: Certificates, inline: bool) -> None:
    stores = keystores(certificates)
    settings: dict[str, object] = {
        "ssl_keystore_location": stores["server"],
        "ssl_keystore_password": "secret",
        "ssl_truststore_location": stores["trust"],
        "ssl_truststore_password": "secret",
        "ssl_client_auth": "required",
    }
    if inline:
        folder = certificates.folder
        settings = {
            "ssl_keystore_location": "",
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": (folder / "locked.key").read_text(),
            "ssl_key_password": "secret",
            "ssl_keystore_certificate_chain": (folder / "locked.crt").read_text(),
            "ssl_truststore_certificates": Path(certificates.authority).read_text(),
            "ssl_client_auth": "required",
        }
    shown = certificates.shown("broker")
    shown.check_hostname = not inline
    async with tls_serving(certificates, **settings) as acceptor, client(acceptor, shown) as c:
        c.send(b"well")
        assert await c.receive() == b"well"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "ssl.keystore.location: is missing"),
        ({"keystore.location": "{folder}/none"}, "{folder}/none: no such file or directory"),
        ({"keystore.location": "{folder}/old.jks"}, "is a JKS store; Ottla reads PEM and PKCS12"),
        ({"keystore.location": "{folder}/server.pem", "keystore.type": "PKCS12"}, "is not a PKCS12 store"),
        ({"keystore.location": "{folder}/server.p12", "keystore.type": "PEM"}, "is not a PEM store"),
        (
            {"keystore.location": "{folder}/server.p12", "keystore.password": "wrong"},
            "a PKCS12 store and ssl.keystore.password are needed",
        ),
        ({"keystore.location": "{folder}/trust.p12", "keystore.password": "secret"}, "has no private key"),
        ({"keystore.location": "{folder}/locked.pem"}, "ssl.key.password if the key is encrypted"),
        (
            {"keystore.location": "{folder}/key.pem"},
            "OpenSSL can't use it; a private key and its",
        ),
        ({"keystore.key": "x"}, "ssl.keystore.certificate.chain: is missing"),
        ({"keystore.key": "x", "keystore.location": "y"}, "can't be set together with ssl.keystore.location"),
        (
            {"keystore.location": "{folder}/server.pem", "cipher.suites": "TLS_AES_128_GCM_SHA256"},
            "can't be chosen one by one",
        ),
        (
            {"keystore.location": "{folder}/server.pem", "cipher.suites": "TLS_NO_SUCH"},
            "OpenSSL knows none of TLS_NO_SUCH",
        ),
        (
            {
                "keystore.location": "{folder}/server.pem",
                "client.auth": "required",
                "truststore.location": "{folder}/key.pem",
            },
            "ssl.truststore.location: {folder}/key.pem: has no certificates",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(
    certificates: Certificates, settings: dict[str, str], message: str
) -> None:
    keystores(certificates)
    folder = str(certificates.folder)
    made = settings_of({f"ssl.{k}": v.replace("{folder}", folder) for k, v in settings.items()})
    with pytest.raises(TlsError, match=r"^listener\.name\.ssl\.ssl\.") as raised:
        made.server()
    assert message.replace("{folder}", folder) in str(raised.value)


@pytest.mark.parametrize(
    ("suites", "version", "chosen"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256", "TLSv1.3", "TLS_"),
    ],
)
async def test_cipher_suites(certificates: Certificates, suites: str, version: str, chosen: str) -> None:
    async with (
        tls_serving(certificates, ssl_cipher_suites=suites) as acceptor,
        client(acceptor, certificates.shown(None)) as c,
    ):
        tls = c.writer.get_extra_info("ssl_object")
        assert tls.version() == version
        assert tls.cipher()[0].startswith(chosen)


async def test_a_tls_client_on_a_plain_listener_gets_one_line(certificates: Certificates, log: Log) -> None:
    async with serving(echo) as acceptor:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with client(acceptor, certificates.shown(None)):
                pass
        await until(lambda: len(log()) == 1)
        assert "the client speaks TLS" in str(log()[0]["reason"])
