"""Pages that brokers serve on their ``metrics.listener``, for what Kafka's protocol doesn't say.

Apache Kafka's brokers report such things by JMX alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from ottla_protocol.aio.http_client import exchange
from ottla_protocol.http_client import Address, HttpError, HttpExchange
from ottla_protocol.prometheus import parse_address

from ...shared.admin import ranges_of

if TYPE_CHECKING:
    from ottla_client.types import Node

T = TypeVar("T")

LISTENER: Final = "metrics.listener"
"""The setting that says where a broker serves them."""
_SECONDS: Final = 5.0
_ANY: Final = ("0.0.0.0", "::")


class Page(NamedTuple, Generic[T]):
    """A page with a JSON document.

    Attributes:
        what: what it says, for notes: "file descriptors".
        read: makes something of the document. KeyError, TypeError and ValueError mean that it is another one.
    """

    path: str
    what: str
    read: Callable[[Mapping[str, Any]], T]


class Asked(NamedTuple, Generic[T]):
    """The answers of brokers; ``without`` are those that serve no metrics, ``remarks`` says why others aren't known."""

    found: dict[int, T]
    without: list[int]
    remarks: list[str]


async def ask(
    page: Page[T], nodes: Collection[Node], listeners: Mapping[int, str], cluster_id: str | None
) -> Asked[T]:
    """Ask the brokers whose ``metrics.listener`` is known. ``listeners`` has empty texts for those without."""
    asked: Asked[T] = Asked({}, [], [])
    wanted = []
    for node in nodes:
        address = parse_address(listeners.get(node.id, ""))
        if address is not None:
            host, port = address
            wanted.append((node.id, Address(False, node.host if host in _ANY else host, port, page.path)))
        elif node.id in listeners:
            asked.without.append(node.id)

    async def one(broker: int, address: Address) -> None:
        try:
            asked.found[broker] = await _read(page, broker, address, cluster_id)
        except HttpError as error:
            asked.remarks.append(f"{page.what} of broker {broker} couldn't be checked: {error}")

    await asyncio.gather(*(one(broker, address) for broker, address in wanted))
    return asked


async def _read(page: Page[T], broker: int, address: Address, cluster_id: str | None) -> T:
    """A broker's page. Raises HttpError."""
    found = HttpExchange(address)
    await exchange(found, tls=None, connect_timeout=_SECONDS, read_timeout=_SECONDS)
    try:
        document = json.loads(found.body) if found.status == 200 else None
        if document is None:
            raise HttpError(f"{address.where}{page.path} answers {found.status}")
        if (document["broker_id"], document["cluster_id"]) != (broker, cluster_id):
            raise HttpError(f"another broker serves {address.where}, seen from here")
        return page.read(document)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise HttpError(f"{address.where}{page.path} is no page of a broker") from error


def why_not(what: str, without: Collection[int], strangers: Collection[int]) -> str | None:
    """A remark on what isn't known of brokers that serve no metrics, and of those that have no such setting."""
    if strangers:
        return f"{what} couldn't be checked: Apache Kafka's brokers report them by JMX alone"
    if without:
        return (
            f"{what} couldn't be checked: {LISTENER} isn't set on broker{'' if len(without) == 1 else 's'}"
            f" {ranges_of(without)}"
        )
    return None
