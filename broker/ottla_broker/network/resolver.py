"""From names of hosts to addresses, without holding anybody up.

A look-up can't be given up: whoever asks the resolver waits until it answers, which takes it many seconds when no name
server does. So each name is looked up once at a time, for all who ask, on a thread of its own that nobody waits for at
the end; pools of threads are left to others.
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
        """The addresses of a host, in the order in which they are to be tried.

        Cancelling this, as a deadline does, leaves the look-up to those who ask next. Raises OSError.
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
        # An error that nobody waits for any more is found again by who asks next.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

        def settle(addresses: list[str], error: OSError | None) -> None:
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
                loop.call_soon_threadsafe(settle, addresses, failure)
            except RuntimeError:
                return  # the loop has been closed: nobody is left to be told

        threading.Thread(target=run, name=f"look-up {host}", daemon=True).start()
        return future


def _addresses(infos: list[Any]) -> list[str]:
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))
