"""Topics with their rates, and one topic with its partitions, settings and groups."""

from __future__ import annotations

from aiohttp import web

from ottla_cli.cluster.state import problem_of
from ottla_client.errors import BrokerError
from ottla_client.types import OffsetSpec, TopicPartition
from ottla_protocol.errors import ErrorCode

from ..rendering import View
from ..sessions import Session
from ..site import flag_in, page_of
from ..watch import offsets_known

_MOST_PARTITIONS = 2_000
"""Rates of more partitions than this on one page aren't computed."""


async def topics(request: web.Request, session: Session) -> View:
    """A page of topics, those with problems first."""
    watch = session.watch
    state = await watch.state.get()
    text = request.query.get("q", "")[:250]
    internal = flag_in(request.query, "internal")
    wrong = {problem.topic: problem.problem for problem in reversed(state.problems)}
    names = sorted(
        (
            name
            for name, topic in state.topics.items()
            if text.lower() in name.lower() and (internal or not topic.is_internal)
        ),
        key=lambda name: (name not in wrong, name),
    )
    part = page_of(request.query, names)
    led = {
        name: [number for number, each in state.topics[name].partitions.items() if each.leader is not None]
        for name in part.rows
    }
    is_small = sum(map(len, led.values())) <= _MOST_PARTITIONS
    rates = await watch.rates_of({name: its for name, its in led.items() if its}) if is_small else {}
    sizes: dict[str, int] = dict.fromkeys(part.rows, 0)
    for folders in state.folders.values():
        for folder in folders:
            for partition, log in folder.replicas.items():
                if partition.topic in sizes:
                    sizes[partition.topic] += log.size
    return View(
        "topics.html",
        {
            "part": part,
            "topics": state.topics,
            "rates": rates,
            "sizes": sizes if state.folders else {},
            "wrong": wrong,
            "q": text,
            "internal": internal,
        },
        live=True,
    )


async def topic(request: web.Request, session: Session) -> View:
    from ottla_client.admin import ConfigResource

    name = request.match_info["topic"]
    watch = session.watch
    state = await watch.state.get()
    its = state.topics.get(name)
    if its is None:
        # It may have been created since.
        its = (await session.admin.describe_topics([name]))[name]
    part = page_of(request.query, sorted(its.partitions), 100)
    led = [number for number in part.rows if its.partitions[number].leader is not None]
    rates = (await watch.rates_of({name: led})).get(name) if led else None
    starts = await offsets_known(
        session.admin, dict.fromkeys((TopicPartition(name, number) for number in led), OffsetSpec.EARLIEST)
    )
    resource = ConfigResource.topic(name)
    try:
        entries = (await session.admin.describe_configs([resource]))[resource]
    except BrokerError as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        entries = None
    settings = sorted((entries or {}).values(), key=lambda entry: (entry.is_default, entry.name))
    minimum = state.minimums.get(name)
    return View(
        "topic.html",
        {
            "name": name,
            "topic": its,
            "part": part,
            "settings_refused": entries is None,
            "rates": rates,
            "ends": rates.looks[-1][1] if rates else {},
            "starts": {p.partition: offset for p, offset in starts.items()},
            "problems": {number: problem_of(its.partitions[number], minimum) for number in part.rows},
            "moving": {p.partition: each for p, each in (state.moving or {}).items() if p.topic == name},
            "settings": settings,
        },
        live=True,
    )
