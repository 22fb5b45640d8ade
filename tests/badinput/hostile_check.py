"""Sends the most elements that a request may have, and measures what that costs the broker.

The loop thread's own CPU time is measured, so that a busy machine changes nothing. ``OTTLA_HOSTILE`` sets the share of
the most elements, in percent.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from tests.badinput.hostile import Attack
from tests.support.handlers import api_of
from tests.support.watched import WatchedBroker
from tests.support.wire import Wire, frame

from ottla_broker.requests.dispatch import LARGEST_PLAIN_REQUEST
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.api_versions import ApiVersionsRequest

MiB: Final = 1024 * 1024
LONGEST_HOLD: Final = 0.05
SHARE: Final = int(os.environ.get("OTTLA_HOSTILE", "10"))


def answer(wire: Wire, request: bytes) -> bool:
    """Whether a request is answered; otherwise its connection is closed."""
    wire.send(frame(request))
    try:
        wire.receive()
    except ConnectionError:
        return False
    return True


def name_of(attack: Attack) -> str:
    return f"{ApiKey(attack.key).name.lower()}-{'-'.join(attack.path)}"


def most(attack: Attack) -> int:
    """The most elements that are decoded, or that fit into a frame."""
    size = (len(attack.request(12)) - len(attack.request(2))) // 10
    memory = api_of(attack.key).memory - 8192
    return min(memory // attack.cost, (LARGEST_PLAIN_REQUEST - 8192) // size) * SHARE // 100


def check(watched: WatchedBroker, attack: Attack) -> None:
    """The request neither holds the event loop, nor takes much memory."""
    with Wire(watched.port) as wire:
        # The first request compiles its codecs.
        answer(wire, attack.request(2))
    with Wire(watched.port) as wire:
        answer(wire, attack.request(min(1000, most(attack))))
    measure(watched, name_of(attack), attack.request(most(attack)))


def measure(
    watched: WatchedBroker,
    name: str,
    request: bytes,
    made: int = 0,
    connect: Callable[[], Wire] | None = None,
) -> bool:
    """Send a request and check its cost; returns whether it is answered.

    ``made``: the bytes of what it creates. ``connect``: for a connection that has logged in.
    """
    with Wire(watched.port) if connect is None else connect() as wire:
        before = watched.memory("VmRSS")
        watched.watch()
        answered = answer(wire, request)
        # The turn that has answered is over when another one is answered.
        with Wire(watched.port) as other:
            other.call(ApiVersionsRequest(), 0)
        held, grown = watched.hold(), watched.memory("VmHWM") - before
    print(f"{name:55} {len(request):9} bytes {answered=} held {held * 1000:6.1f} ms, {grown / MiB:6.1f} MiB")
    assert held < LONGEST_HOLD
    assert grown <= 4 * len(request) + made + 16 * MiB
    return answered
