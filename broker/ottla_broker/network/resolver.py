"""Host names to addresses, without blocking the event loop.

A lookup can't be cancelled: the system's resolver blocks its caller until it answers, which takes many seconds when no
name server does. So there is one lookup per name at a time, shared by all callers, on its own daemon thread. It takes
no thread from a pool, and the broker doesn't wait for it at the end.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from typing import Any


class Resolver:
    """Owned by the loop thread."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[list[str]]] = {}

    async def find(self, host: str) -> list[str]:
        """The addresses of a host, in the order to try them.

        A lookup that was begun goes on when this is cancelled, for later callers. Raises OSError.
        """
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            found = self._under_way.get(host)
        if found is None:
            found = self._under_way[host] = self._start(host)
        return await asyncio.shield(found)

    def _start(self, host: str) -> asyncio.Future[list[str]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[str]] = loop.create_future()
        # Marks an error as retrieved: without callers left, the next lookup finds it again.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

        def complete(addresses: list[str], error: OSError | None) -> None:
            self._under_way.pop(host, None)
            if error is None:
                future.set_result(addresses)
            else:
                future.set_exception(error)

        def run() -> None:
            addresses: list[str] = []
            failure: OSError | None = None
            try:
                addresses = _addresses(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
            except OSError as error:
                failure = error
            except UnicodeError as error:
                failure = socket.gaierror(socket.EAI_NONAME, str(error))
            try:
                loop.call_soon_threadsafe(complete, addresses, failure)
            except RuntimeError:
                return  # the loop has been closed

        threading.Thread(target=run, name=f"look-up {host}", daemon=True).start()
        return future


def _addresses(infos: list[Any]) -> list[str]:
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))
