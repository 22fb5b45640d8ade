"""The console in headless Chromium: axe finds nothing, nothing fails, keys work, and no page is wider than a phone.

Chromium is driven by its DevTools protocol. ``OTTLA_PICTURES=folder`` keeps a picture of each page and look.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType
from aiohttp.test_utils import TestServer
from harness.brokers import Broker
from tests.interop.conftest import MakeTopic
from tests.interop.support import PROGRAMS, built, needed

from ottla_client import Admin, Producer, TopicPartition
from ottla_client.admin import NewTopic
from ottla_console.app import build
from ottla_console.settings import WebSettings

ARCHIVE: Final = Path(__file__).parents[1] / "pipeline/data/landed.tar.xz"
SECONDS: Final = 60
CHROMIUM: Final = (
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class Look(NamedTuple):
    """How a page is looked at."""

    theme: str
    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.theme}-{self.width}"


LOOKS: Final = [Look(theme, *size) for size in ((1280, 900), (390, 844)) for theme in ("light", "dark")]


class PageLeftError(Exception):
    """The page was left while it was asked something."""


LEFT: Final = ("navigated or closed", "context was destroyed", "Cannot find context", "execution context")


class Tab:
    """A tab of the browser. ``wrong``: what the page's scripts and its content security policy complained of."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._serial = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.wrong: list[str] = []

    async def read(self) -> None:
        """Take what the browser sends, until it closes."""
        async for message in self._socket:
            assert message.type is WSMsgType.TEXT
            found = message.json()
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
            elif found["method"] == "Runtime.exceptionThrown":
                self.wrong.append(found["params"]["exceptionDetails"]["text"])
            elif found["method"] == "Log.entryAdded" and found["params"]["entry"]["level"] == "error":
                entry = found["params"]["entry"]
                self.wrong.append(f"{entry.get('url')}: {entry['text']}")

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._serial)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(SECONDS):
            found = await answer
        if "error" in found and any(each in found["error"]["message"] for each in LEFT):
            raise PageLeftError(found["error"]["message"])
        assert "error" not in found, found
        result: dict[str, Any] = found["result"]
        return result

    async def evaluate(self, expression: str) -> Any:
        found = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def after_loading(self, expression: str) -> None:
        """Run something that leads to another page, and wait for it."""
        await self.evaluate("window.before = true")
        with suppress(PageLeftError):
            await self.evaluate(expression)
        # The load event says less: that of the page before may come late.
        await self.until("!window.before && document.readyState === 'complete'")

    async def until(self, expression: str, seconds: float = SECONDS) -> None:
        """Wait until an expression holds, on whatever page."""
        async with asyncio.timeout(seconds):
            while True:
                with suppress(PageLeftError):
                    if await self.evaluate(expression):
                        return
                await asyncio.sleep(0.05)

    async def press(self, key: str, number: int = 0) -> None:
        """Press a key: a letter, or one with this number."""
        text = {} if number else {"text": key}
        await self.call(
            "Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=number, **text
        )
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=number)


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Tab]:
    """Chromium with one tab."""
    process = await asyncio.create_subprocess_exec(
        needed("chromium"),
        *CHROMIUM,
        f"--user-data-dir={folder}",
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        address = folder / "DevToolsActivePort"
        async with asyncio.timeout(SECONDS):
            while not (address.exists() and address.read_text().count("\n")):
                await asyncio.sleep(0.05)
        port = address.read_text().splitlines()[0]
        async with ClientSession() as session:
            urls: list[str] = []
            async with asyncio.timeout(SECONDS):
                while not urls:  # it answers before it has a tab
                    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                        targets = await answer.json()
                    urls = [each["webSocketDebuggerUrl"] for each in targets if each["type"] == "page"]
                    await asyncio.sleep(0.05)
            async with session.ws_connect(urls[0], max_msg_size=0) as socket:
                tab = Tab(socket)
                reading = asyncio.ensure_future(tab.read())
                try:
                    for domain in ("Page", "Runtime", "Log"):
                        await tab.call(f"{domain}.enable")
                    yield tab
                finally:
                    await socket.close()
                    await reading
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def filled(broker: Broker, topic: str) -> AsyncIterator[None]:
    """Something on each page: records, groups, a quota, dead letters. Other tests use the broker, too."""
    letters = f"{topic}-dlq"
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(letters, 1)])
        async with Producer(broker.address) as producer:
            for number in range(60):
                await producer.send_and_wait(topic, b'{"n": %d}' % number, key=b"<b>key</b>", partition=0)
            reasons = [("ottla.topic", topic.encode()), ("ottla.partition", b"0"), ("ottla.offset", b"4")]
            await producer.send_and_wait(
                letters, b"x" * 300, headers=[*reasons, ("ottla.error", b"no number")]
            )
        groups = [f"{topic} group {number}" for number in range(55)]
        for number, group in enumerate(groups):
            await admin.alter_group_offsets(group, {TopicPartition(topic, 0): number})
        await admin.alter_client_quotas({"user": topic}, {"producer_byte_rate": 1048576.0})
        yield
        await admin.alter_client_quotas({"user": topic}, {"producer_byte_rate": None})
        await admin.delete_groups(groups)
        await admin.delete_topics([letters])


async def by_keyboard(tab: Tab, overview: str) -> None:
    await tab.after_loading(f"location.assign({json.dumps(overview)})")
    await tab.press("?")
    await tab.until("document.getElementById('help').open")
    await tab.press("Escape", 27)
    await tab.until("!document.getElementById('help').open")
    # Both keys at once, and again: the page forgets the first after a moment, and a busy machine may take longer.
    for _ in range(6):
        await asyncio.gather(tab.press("g"), tab.press("t"))
        with suppress(TimeoutError):
            await tab.until(
                "location.pathname === '/topics' && document.readyState === 'complete'", SECONDS / 6
            )
            break
    else:
        raise AssertionError("the keys g and t don't lead to the topics")
    await tab.press("/")
    await tab.until("document.activeElement.name === 'q'")


async def live(tab: Tab, page: str, broker: Broker, topic: str) -> None:
    """A topic that is made meanwhile appears on the page, which isn't loaded again."""
    await tab.after_loading(f"location.assign({json.dumps(page)})")
    await tab.evaluate("window.same = true")
    link = f"document.querySelector('a[href=\"/topics/{topic}\"]') !== null"
    assert not await tab.evaluate(link)
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
        await tab.until(link)
        assert await tab.evaluate("window.same")
        await admin.delete_topics([topic])


async def test_in_a_browser(broker: Broker, new_topic: MakeTopic, tmp_path: Path) -> None:
    npm = needed("npm")
    install = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline"]
    axe = built("axe", PROGRAMS / "axe", "node_modules", install) / "node_modules/axe-core/axe.min.js"
    script = axe.read_text()
    topic = new_topic(partitions=3)
    with tarfile.open(ARCHIVE) as archive:
        wanted = [
            each for each in archive.getmembers() if each.name.partition("/")[0] in ("delta", "parquet")
        ]
        archive.extractall(tmp_path / "lake", members=wanted, filter="data")
    console = WebSettings(
        client={"bootstrap_servers": broker.address}, landing=(str(tmp_path / "lake"),), refresh=0.2
    )
    login = WebSettings(
        client={
            "bootstrap_servers": broker.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
        },
        port=1,
    )
    form = "document.querySelector('form[method=post][action$=\"reset\"]')"
    pages = {
        "overview": "/",
        "topics": "/topics",
        "topic": f"/topics/{topic}",
        "messages": f"/topics/{topic}/messages",
        "found": f"/topics/{topic}/messages?from=earliest&contains=1",
        "message": f"/topics/{topic}/0/0",
        "groups": "/groups",
        "group": f"/group?id={topic}+group+3",
        "confirm": f"{form}.submit()",
        "history": f"/group/history?id={topic}+group+3",
        "brokers": "/brokers",
        "transactions": "/transactions",
        "moves": "/moves",
        "access": "/access?who=bob&operation=read&resource=topic:wages",
        "quotas": "/quotas",
        "landing": "/landing",
        "dead-letters": f"/landing/dead-letters/{topic}-dlq",
        "failed": "/nothing",
    }
    pictures = os.environ.get("OTTLA_PICTURES")
    found: dict[str, Any] = {}
    async with (
        filled(broker, topic),
        TestServer(build(console)) as server,
        TestServer(build(login)) as other,
        browser(tmp_path / "profile") as tab,
    ):
        for name, path in [*pages.items(), ("login", str(other.make_url("/login")))]:
            if path.startswith("/"):
                path = str(server.make_url(path))
            leads = path if path.startswith("document") else f"location.assign({json.dumps(path)})"
            await tab.after_loading(leads)
            await tab.evaluate(script)
            for look in LOOKS:
                features = [{"name": "prefers-color-scheme", "value": look.theme}]
                await tab.call("Emulation.setEmulatedMedia", features=features)
                size = {"width": look.width, "height": look.height, "mobile": look.width < 800}
                await tab.call("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, **size)
                result = json.loads(
                    await tab.evaluate(
                        "axe.run().then(all => JSON.stringify([all.violations, all.passes.length]))"
                    )
                )
                violations, passes = result
                assert passes > 10, (name, result)
                for each in violations:
                    found[f"{name} {look} {each['id']}"] = [node["html"] for node in each["nodes"]]
                wide = await tab.evaluate("document.documentElement.scrollWidth")
                if wide > look.width:
                    found[f"{name} {look} is too wide"] = wide
                if pictures:
                    picture = await tab.call("Page.captureScreenshot", captureBeyondViewport=True)
                    file = Path(pictures) / f"{name}-{look}.png"
                    file.write_bytes(base64.b64decode(picture["data"]))
        await by_keyboard(tab, str(server.make_url("/")))
        await live(tab, str(server.make_url(f"/topics?q={topic}-later")), broker, f"{topic}-later")
        # The page that isn't there is the only one that the browser complains of.
        wrong = [each for each in tab.wrong if "/nothing: " not in each]
    assert not found, json.dumps(found, indent=1)
    assert not wrong
