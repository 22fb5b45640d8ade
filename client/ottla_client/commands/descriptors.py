"""How many file descriptors brokers have open, by ``/health/process`` of their ``metrics.listener``.

Kafka's protocol doesn't say it. Apache Kafka's brokers report it by JMX alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_protocol.http_client import Address, HttpError, ResponseReader, encode_request
from ottla_protocol.prometheus import parse_address

from ..transport import exchange
from .admin_common import ranges_of

if TYPE_CHECKING:
    from ..types import Node

LISTENER: Final = "metrics.listener"
"""The setting that says where a broker serves it."""
_PATH: Final = "/health/process"
_SECONDS: Final = 5.0
_ANY: Final = ("0.0.0.0", "::")


class Descriptors(NamedTuple):
    """How many are open, and how many may be."""

    open: int
    most: int


class Asked(NamedTuple):
    """What brokers answer; ``without`` are those that serve no metrics, ``remarks`` says why others aren't known."""

    found: dict[int, Descriptors]
    without: list[int]
    remarks: list[str]


async def ask(nodes: Collection[Node], listeners: Mapping[int, str], cluster_id: str | None) -> Asked:
    """Ask the brokers whose ``metrics.listener`` is known. ``listeners`` has empty texts for those without."""
    asked = Asked({}, [], [])
    wanted = []
    for node in nodes:
        address = parse_address(listeners.get(node.id, ""))
        if address is not None:
            host, port = address
            wanted.append((node.id, Address(False, node.host if host in _ANY else host, port, _PATH)))
        elif node.id in listeners:
            asked.without.append(node.id)

    async def one(broker: int, address: Address) -> None:
        try:
            found = await _process(broker, address, cluster_id)
        except HttpError as error:
            asked.remarks.append(f"file descriptors of broker {broker} couldn't be checked: {error}")
        else:
            if found is not None:
                asked.found[broker] = found

    await asyncio.gather(*(one(broker, address) for broker, address in wanted))
    return asked


async def _process(broker: int, address: Address, cluster_id: str | None) -> Descriptors | None:
    """A broker's descriptors; None if its system doesn't count or limit them. Raises HttpError."""
    reader = ResponseReader(address)
    await exchange(reader, address, encode_request(address), None, _SECONDS)
    try:
        document = json.loads(reader.body) if reader.status == 200 else None
        if document is None:
            raise HttpError(f"{address.where}{_PATH} answers {reader.status}")
        if (document["broker_id"], document["cluster_id"]) != (broker, cluster_id):
            raise HttpError(f"another broker serves {address.where}, seen from here")
        numbers = document["open_descriptors"], document["max_descriptors"]
        return None if None in numbers else Descriptors(*map(int, numbers))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise HttpError(f"{address.where}{_PATH} is no page of a broker") from error


def why_not(without: Collection[int], strangers: Collection[int]) -> str | None:
    """Why the descriptors of brokers aren't known that serve no metrics, and of those that have no such setting."""
    if strangers:
        return "file descriptors couldn't be checked: Apache Kafka's brokers report them by JMX alone"
    if without:
        return (
            f"file descriptors couldn't be checked: {LISTENER} isn't set on broker{'' if len(without) == 1 else 's'}"
            f" {ranges_of(without)}"
        )
    return None
