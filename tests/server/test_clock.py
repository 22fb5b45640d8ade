"""The broker waits on its Clock alone, so that tests can move time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import ottla_broker

BROKER = Path(ottla_broker.__file__).parent
FOLDERS = (
    "cluster",
    "controller",
    "coordinator",
    "handlers",
    "log",
    "metadata",
    "network",
    "replica",
    "store",
)
REAL = {
    # Connecting and talking to ZooKeeper: real sockets on real time.
    "store/zookeeper.py",
    "store/zookeeper_link.py",
    # Connecting to other brokers.
    "network/peer.py",
}


def waits(path: Path) -> Iterator[str]:
    """Calls that wait on the event loop's own time. ``asyncio.sleep(0)`` only gives others their turn."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        argument = ast.unparse(node.args[0]) if node.args else ""
        real = (
            (name == "asyncio.sleep" and argument != "0")
            or name in ("asyncio.timeout", "asyncio.timeout_at", "asyncio.wait_for")
            or (name == "asyncio.wait" and any(keyword.arg == "timeout" for keyword in node.keywords))
            or name.endswith(("loop.time", "loop().time", "loop.call_later", "loop().call_later", ".call_at"))
        )
        if real:
            yield f"{path.relative_to(BROKER)}:{node.lineno}: {name}"


def test_nothing_below_the_server_waits_on_the_event_loop() -> None:
    files = [path for folder in FOLDERS for path in sorted((BROKER / folder).rglob("*.py"))]
    assert files
    found = [call for path in files if str(path.relative_to(BROKER)) not in REAL for call in waits(path)]
    assert not found
