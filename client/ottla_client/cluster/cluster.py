"""A client's view of a cluster: bootstrap, fresh metadata, group coordinators, and requests to brokers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from ottla_client.connection import Connection
from ottla_client.deadline import Deadline
from ottla_client.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerError,
    ClientError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    NotABrokerError,
    RequestTimeoutError,
    UnknownTopicError,
    is_retriable,
)
from ottla_client.settings import ConnectionSettings
from ottla_client.staggered import AllFailed, staggered_race
from ottla_client.suggestions import near_names
from ottla_client.types import Node, TopicMetadata
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import RETRIABLE, ErrorCode, error_code
from ottla_protocol.features import Features

from .addresses import parse_servers
from .backoff import Backoff, retrying
from .connection_pool import ConnectionPool
from .coordinators import CoordinatorType, coordinator_of, coordinator_request
from .metadata import MetadataCache, metadata_request, unsettled
from .tasks import Tasks, joined
from .topic_names import NAME_RULE

if TYPE_CHECKING:
    from ottla_protocol.schema import Message

T = TypeVar("T")
_MetadataKey = tuple[frozenset[str] | None, bool]
_CoordinatorKey = tuple[CoordinatorType, str]

log = logging.getLogger("ottla_client")
QUIET_SECONDS = 5.0
"""For how long a broker may not answer at first before that is logged; a call that ends sooner raises why."""

_REFUSED = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: NAME_RULE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user is not allowed to do that",
}
"""Explanations of codes for topics."""

_DEFAULTS = ConnectionSettings()

_MOST_SUGGESTED = 10
"""Unknown topics of one call for which others are suggested."""
INCOMPLETE_SECONDS = 10.0
"""The age of metadata that names replicas on brokers that are not there: they may be all that is left soon."""

STAGGER = 1.0
"""Seconds before the next broker is tried in parallel with one that hasn't answered."""


class Cluster:
    """Belongs to one event loop, and to the producer, consumer or admin that created it."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        settings: ConnectionSettings = _DEFAULTS,
    ) -> None:
        """Raises ConfigurationError for addresses that can't be parsed, and TLS files that can't be read."""
        self.bootstrap = parse_servers(bootstrap_servers)
        self.request_timeout = settings.request_timeout
        self.backoff = Backoff(settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
        self._max_age = settings.metadata_max_age_ms / 1000
        self._pool = ConnectionPool(settings, self._lost)
        self._cache = MetadataCache()
        self._metadata_from = ""
        self._tasks = Tasks()
        self._closed = False
        self._interest: dict[str, int] = {}
        self._suspect: set[str] = set()
        self._metadata_requests: dict[_MetadataKey, asyncio.Task[dict[str, TopicMetadata]]] = {}
        self._wake = asyncio.Event()
        self._changed: list[Callable[[], None]] = []
        self._refresh_error: ClientError | None = None
        self._failing: dict[int | _CoordinatorKey, float] = {}
        """Since when a broker was not reached for the first time, or no coordinator was found; infinity once said."""
        self._coordinators: dict[_CoordinatorKey, int] = {}
        self._coordinator_requests: dict[_CoordinatorKey, asyncio.Task[int]] = {}

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap)

    @property
    def features(self) -> Features:
        """The cluster's features, as the brokers reported them when connections were opened."""
        return self._pool.features

    async def start(self, deadline: Deadline) -> None:
        """Connect to a bootstrap server and fetch the list of brokers.

        Raises BootstrapError, with the outcome for each address, if no broker answers in time, or at once if none of
        the addresses can be a broker's.
        """
        try:
            await self._first_metadata(deadline)
        except BaseException:
            await self.close()
            raise
        self._tasks.start(self._keep_fresh())

    async def _first_metadata(self, deadline: Deadline) -> None:
        failures = 0
        warned = False
        lost: ConnectionLostError | None = None
        began = asyncio.get_running_loop().time()
        while True:
            try:
                await self._fetch_metadata((frozenset(), False), deadline)
                return
            except TimeoutError:
                pass  # no broker has answered in time: try again below, while there is time
            except ClientError as error:
                if not (is_retriable(error) or isinstance(error, ConnectError)):
                    raise
                if all(self._is_final(address) for address in self.bootstrap):
                    raise BootstrapError(self._bootstrap_report("")) from self._refused_login() or error
                lost = error if isinstance(error, ConnectionLostError) else None
            failures += 1
            delay = self.backoff.after(failures)
            if deadline.left() <= delay:
                report = self._bootstrap_report(" in time", lost)
                errors = (self._pool.error(("bootstrap", address)) for address in self.bootstrap)
                if all("connection refused" in str(error) for error in errors):
                    report += "; is a broker running there?"
                raise BootstrapError(report) from self._refused_login()
            if not warned and asyncio.get_running_loop().time() - began >= QUIET_SECONDS:
                warned = True
                log.warning("%s; trying again", self._bootstrap_report(" yet"))
            await asyncio.sleep(delay)

    def _is_final(self, address: tuple[str, int]) -> bool:
        error = self._pool.error(("bootstrap", address))
        return error is not None and not is_retriable(error)

    def _refused_login(self) -> AuthenticationError | None:
        """The error of a bootstrap server that refuses the login."""
        errors = (self._pool.error(("bootstrap", address)) for address in self.bootstrap)
        return next((error for error in errors if isinstance(error, AuthenticationError)), None)

    def _bootstrap_report(self, when: str, lost: ConnectionLostError | None = None) -> str:
        """``lost``: how the last connection ended, after its broker had answered ApiVersions."""
        # By what is said apart from the address: servers that fail alike share a sentence.
        did: dict[str, list[str]] = {}
        for address in self.bootstrap:
            where = f"{address[0]}:{address[1]}"
            error = self._pool.error(("bootstrap", address))
            if error is not None:
                said = str(error)
            elif lost is not None and where in str(lost):
                said = f"{lost}; if its listener wants a login, set security_protocol and sasl_mechanism"
            else:
                said = f"{where}: no answer"
            did.setdefault(said.replace(where, "\0"), []).append(where)
        outcomes = (said.replace("\0", ", ".join(servers)) for said, servers in did.items())
        return f"no bootstrap server answered as a broker{when}: " + "; ".join(outcomes)

    async def close(self) -> None:
        """End all tasks and close all connections; pending calls raise ClosedError or ConnectionLostError.

        Cancelling this call doesn't stop the closing.
        """
        self._closed = True
        self._tasks.cancel()
        self._pool.close()
        await self._tasks.ended()
        await self._pool.wait_closed()

    @property
    def nodes(self) -> dict[int, Node]:
        """The live brokers by id, with their advertised addresses."""
        return self._cache.nodes

    @property
    def connection_count(self) -> int:
        """The number of open connections to brokers."""
        return self._pool.connection_count

    @property
    def unreachable(self) -> str | None:
        """The reason why no broker can be reached, while the metadata's refresh goes on trying; None while one can."""
        error = self._refresh_error
        return str(error) if isinstance(error, ConnectError) and not self.connection_count else None

    @property
    def controller_id(self) -> int | None:
        """The id of the broker for administrative requests; None while there is none, and with brokers before 0.10."""
        return self._cache.controller_id

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None with brokers that don't report it."""
        return self._cache.cluster_id

    def topic(self, name: str) -> TopicMetadata | None:
        """A topic in the cache, or None. Sends no request."""
        return self._cache.topics.get(name)

    def topic_error(self, name: str) -> ErrorCode | None:
        """The error for a topic in the last response; None without an error, and before the first request."""
        return self._cache.errors.get(name)

    def leader(self, topic: str, partition: int) -> int | None:
        """The id of the partition's leader; None if it is unknown or there is none."""
        return self._cache.leaders.get((topic, partition))

    async def fetch_topics(
        self, names: Collection[str] | None, deadline: Deadline, *, allow_auto_create: bool = False
    ) -> dict[str, TopicMetadata]:
        """Fetch the metadata of ``names``, or with None of all topics. A topic may have an ``error`` instead.

        Equal requests that haven't been sent yet are merged. Lost connections are retried until the deadline, then
        RequestTimeoutError is raised.
        """
        key = (None if names is None else frozenset(names), allow_auto_create)
        return await retrying(
            lambda: self._fetch_metadata(key, deadline),
            deadline,
            backoff=self.backoff,
            what="the cluster's metadata is not available",
        )

    async def _fetch_metadata(self, key: _MetadataKey, deadline: Deadline) -> dict[str, TopicMetadata]:
        self._check_open()
        task = self._metadata_requests.get(key)
        if task is None:
            task = self._metadata_requests[key] = self._tasks.start(self._request_metadata(key))
        return await joined(task, deadline)

    async def _request_metadata(self, key: _MetadataKey) -> dict[str, TopicMetadata]:
        """One Metadata request, which other callers may join until it is sent."""
        names, allow_auto_create = key
        try:
            connection = await self._any(Deadline(self.request_timeout))
        finally:
            del self._metadata_requests[key]
        version = connection.version_of(ApiKey.METADATA)
        request = metadata_request(names, version, allow_auto_create=allow_auto_create)
        response = await connection.submit(request, timeout=self.request_timeout, version=version)
        if not response.brokers:
            raise ConnectError(
                f"{connection.host}:{connection.port} knows no brokers yet, because it is starting"
            )
        self._metadata_from = f"{connection.host}:{connection.port}"
        topics = self._cache.apply(response, names)
        self._adopt()
        self._notify()
        return topics

    def _adopt(self) -> None:
        """Use a bootstrap connection for the broker that advertises its address."""
        for node in self.nodes.values():
            if self._open(node.id, node.id) is None:
                self._pool.move(("bootstrap", (node.host, node.port)), node.id)

    def _notify(self) -> None:
        for callback in tuple(self._changed):
            try:
                callback()
            except Exception as error:
                # A failing callback must not affect the others.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a callback for new metadata failed", "exception": error}
                )

    async def wait_for_topic(
        self, name: str, deadline: Deadline, *, allow_auto_create: bool = False, grace: float = inf
    ) -> TopicMetadata:
        """The topic, once it exists and at least one of its partitions has a leader.

        Raises UnknownTopicError, with similar names, at the deadline or after ``grace`` seconds without the topic;
        BrokerError at once for an invalid name and for a topic that this user may not see.
        """
        believed = Deadline(grace)
        failures = 0
        near: str | None = None
        code: ErrorCode | None = None
        while True:
            try:
                found = await self.fetch_topics((name,), deadline, allow_auto_create=allow_auto_create)
            except RequestTimeoutError:
                if code is None:
                    raise
                raise _not_there(name, code, near) from None  # the previous response says more
            topic = found.get(name)
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                code = error_code(topic.error)
                if not code and any(each.leader is not None for each in topic.partitions.values()):
                    return topic
            if code and code not in RETRIABLE:
                why = _REFUSED.get(code)
                raise BrokerError(
                    code, f"topic {name!r}: {why} ({code.name})" if why else f"topic {name!r}: {code.name}"
                )
            failures += 1
            unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            # A topic that is being created is unknown at first, so look for similar names later.
            if unknown and near is None and failures >= (2 if allow_auto_create else 1):
                found_near = (await self.similar_topics({name}, deadline)).get(name)
                near = f" (is it {' or '.join(map(repr, found_near))}?)" if found_near else ""
            delay = self.backoff.after(failures)
            if min(deadline.left(), believed.left() if unknown else inf) <= delay:
                raise _not_there(name, code, near)
            await asyncio.sleep(delay)

    async def similar_topics(self, names: Collection[str], deadline: Deadline) -> dict[str, list[str]]:
        """Topics with names like those of the first ``names`` that don't exist; none where that can't be found out."""
        try:
            known = await self.fetch_topics(None, deadline)
        except ClientError:
            return {}  # only the suggestion is missing
        found = {}
        for name in islice((each for each in names if each not in known), _MOST_SUGGESTED):
            found[name] = near_names(name, known)
            await asyncio.sleep(0)
        return found

    def interest(self, names: Collection[str]) -> None:
        """Keep these topics fresh. Calls are counted, and each needs one ``disinterest``."""
        for name in names:
            self._interest[name] = self._interest.get(name, 0) + 1
            if name not in self._cache.topics:
                self._wake.set()

    def disinterest(self, names: Collection[str]) -> None:
        """Undo one ``interest``; a topic without interest leaves the cache."""
        for name in names:
            count = self._interest.get(name, 0) - 1
            if count > 0:
                self._interest[name] = count
            else:
                self._interest.pop(name, None)
                self._cache.forget(name)

    def stale(self, topic: str | None = None) -> None:
        """Refresh a topic, or everything, soon. Cheap: many calls cause one request."""
        if topic is not None:
            self._suspect.add(topic)
        self._wake.set()

    def use_bootstrap(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Take these bootstrap servers from now on, because a registry of brokers has named them."""
        for address in set(self.bootstrap).difference(addresses):
            self._pool.drop(("bootstrap", address))
        if addresses and addresses != self.bootstrap:
            self.bootstrap = list(addresses)
            self.stale()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` after each update. Returns a function that removes it."""
        self._changed.append(callback)

        def undo() -> None:
            if callback in self._changed:
                self._changed.remove(callback)

        return undo

    async def _keep_fresh(self) -> None:
        """Refresh topics of interest when they are stale or too old, with a back-off while nothing changes."""
        last = -inf  # the first topics of interest are fetched at once
        fruitless = 0
        while True:
            try:
                async with asyncio.timeout(self._age_limit()):
                    await self._wake.wait()
                await asyncio.sleep(last + self.backoff.after(max(1, fruitless)) - monotonic())
            except TimeoutError:
                log.debug("refreshing the metadata, which is %g s old", self._max_age)
            self._wake.clear()
            names = frozenset(self._interest) | self._suspect
            self._suspect.clear()
            before = self._state(names)
            last = monotonic()
            try:
                await self._fetch_metadata((names, False), Deadline(self.request_timeout))
            except (ClientError, TimeoutError) as error:
                fruitless += 1
                self._refresh_failed(error)
                self._suspect |= names - self._interest.keys()
                self._wake.set()
                continue
            self._refresh_error = None
            fruitless = fruitless + 1 if before == self._state(names) else 0
            if any(unsettled(self.topic(name)) and self._may_settle(name) for name in self._interest):
                self._wake.set()

    def _age_limit(self) -> float:
        topics = (self.topic(name) for name in self._interest)
        partitions = (each for topic in topics if topic is not None for each in topic.partitions.values())
        complete = all(self.nodes.keys() >= set(each.replicas) for each in partitions)
        return self._max_age if complete else min(self._max_age, INCOMPLETE_SECONDS)

    def _refresh_failed(self, error: Exception) -> None:
        """Warn once until a refresh succeeds."""
        said = str(error) or "no answer"
        level = logging.WARNING if self._refresh_error is None else logging.DEBUG
        log.log(level, "the cluster's metadata could not be refreshed, retrying: %s", said)
        self._refresh_error = error if isinstance(error, ClientError) else RequestTimeoutError(said)

    def _state(self, names: Collection[str]) -> list[object]:
        return [self._cache.nodes, *(self._cache.topics.get(name) for name in sorted(names))]

    def _may_settle(self, name: str) -> bool:
        code = self._cache.errors.get(name)
        return code is None or code in RETRIABLE

    async def coordinator(
        self, key: str, deadline: Deadline, kind: CoordinatorType = CoordinatorType.GROUP
    ) -> int:
        """The id of the coordinator of a group or a transactional id, cached until ``forget_coordinator``.

        Retries until the deadline while there is none, then raises RequestTimeoutError. Raises GroupError for a group
        and BrokerError for a transactional id that is refused; UnsupportedApiError for brokers without transactions.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        return await retrying(
            partial(self._find_coordinator, kind, key, deadline),
            deadline,
            backoff=self.backoff,
            what=f"the coordinator of {kind.named(key)} was not found",
        )

    def open_coordinator(self, key: str, kind: CoordinatorType) -> Connection | None:
        """The connection to the coordinator, if that is known and connected."""
        node = self._coordinators.get((kind, key))
        return None if node is None else self._open(node, node)

    def forget_coordinator(self, key: str, kind: CoordinatorType = CoordinatorType.GROUP) -> None:
        """Look the coordinator up again at the next call: it has moved or can't be reached."""
        self._coordinators.pop((kind, key), None)

    async def _find_coordinator(self, kind: CoordinatorType, key: str, deadline: Deadline) -> int:
        self._check_open()
        task = self._coordinator_requests.get((kind, key))
        if task is None:
            task = self._coordinator_requests[kind, key] = self._tasks.start(
                self._request_coordinator(kind, key)
            )
        return await joined(task, deadline)

    async def _request_coordinator(self, kind: CoordinatorType, key: str) -> int:
        try:
            connection = await self._any(Deadline(self.request_timeout))
            if kind is CoordinatorType.TRANSACTION:
                connection.version_of(ApiKey.END_TXN)  # a broker without transactions fails here
            version = connection.version_of(ApiKey.FIND_COORDINATOR)
            request = coordinator_request(kind, key, version)
            response = await connection.submit(request, timeout=self.request_timeout, version=version)
            node = coordinator_of(response, kind, key, version)
        except BrokerError as error:
            if error.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise
            explained = kind.error(error.code, f"{error}{await self._lack(kind)}")
            self._say_failing((kind, key), explained)
            raise explained from error
        finally:
            del self._coordinator_requests[kind, key]
        self._failing.pop((kind, key), None)
        known = self.nodes.get(node.id)
        if known is None or (known.host, known.port) != (node.host, node.port):
            self.nodes[node.id] = node
        self._coordinators[kind, key] = node.id
        return node.id

    async def _lack(self, kind: CoordinatorType) -> str:
        """Why there may be no coordinator. Java's client asks for metadata then, too."""
        with suppress(ClientError, TimeoutError):
            topics = frozenset((kind.topic,))
            found = await self._fetch_metadata((topics, False), Deadline(self.request_timeout))
            return kind.lack(found.get(kind.topic), len(self.nodes))
        return ""

    async def connection(self, node_id: int, deadline: Deadline) -> Connection:
        """The shared connection to a broker, opened if necessary, after a back-off if that failed before.

        Raises ConnectError, NotABrokerError; no retry.
        """
        return self._open(node_id, node_id) or await self._connect(node_id, node_id, deadline)

    async def dedicated(self, node_id: int, deadline: Deadline, purpose: str = "group") -> Connection:
        """As ``connection``, but for one purpose, because a request that waits at the broker delays those after it.

        So group coordination doesn't wait behind fetches, and other requests wait behind neither.
        """
        key = (purpose, node_id)
        return self._open(key, node_id) or await self._connect(key, node_id, deadline)

    def _open(self, key: object, node_id: int) -> Connection | None:
        """The open connection to a broker. Where a broker has moved away, another may listen now."""
        node = self.nodes.get(node_id)
        return self._pool.open_connection(key, None if node is None else (node.host, node.port))

    async def _connect(self, key: object, node_id: int, deadline: Deadline) -> Connection:
        self._check_open()
        node = self.nodes.get(node_id)
        if node is None:
            self.stale()
            known = ", ".join(map(str, sorted(self.nodes))) or "none"
            raise ConnectError(f"broker {node_id} is not among the cluster's live brokers ({known})")
        try:
            return await self._pool.get(key, (node.host, node.port), deadline)
        except (ConnectError, NotABrokerError) as error:
            self.stale()
            if (node.host, node.port) in self.bootstrap or self._pool.reached(key):
                raise
            explained = type(error)(
                f"{error}; {node.host}:{node.port} is the advertised address of broker {node_id}"
                f" (according to {self._metadata_from}): if this machine can't reach it, set advertised.listeners of"
                " that broker to an address that it can reach"
            )
            explained.retriable = error.retriable
            self._say_failing(node_id, explained)
            raise explained from error

    def _say_failing(self, what: int | _CoordinatorKey, error: ClientError) -> None:
        """Warn once of what calls have waited for for a while."""
        now = monotonic()
        if now - self._failing.setdefault(what, now) >= QUIET_SECONDS:
            self._failing[what] = inf
            log.warning("%s; trying again", error)

    async def request(
        self, node_id: int | None, request: Message, deadline: Deadline, *, version: int | None = None
    ) -> Any:
        """Send a request to a broker, or to any with None, and return its response. No retry.

        Raises ConnectError, ConnectionLostError, UnsupportedApiError, and RequestTimeoutError at the deadline or after
        request_timeout_ms.
        """
        connection = await (self._any(deadline) if node_id is None else self.connection(node_id, deadline))
        future = connection.submit(request, timeout=self.request_timeout, version=version)
        try:
            async with deadline.timeout() as limit:
                return await future
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeoutError(
                f"{connection.host}:{connection.port} did not answer {type(request).__name__} in time"
            ) from None

    async def _any(self, deadline: Deadline) -> Connection:
        """A connection to any broker: the least busy open one, or the first to answer, or a bootstrap server."""
        self._check_open()
        keys: list[object] = [*self.nodes, *(("bootstrap", address) for address in self.bootstrap)]
        there = [found for key in keys if (found := self._pool.open_connection(key)) is not None]
        if there:
            return min(there, key=lambda connection: connection.in_flight)
        nodes = [node for node in self.nodes.values() if not self._pool.backing_off(node.id)]
        random.shuffle(nodes)
        named = {(node.host, node.port) for node in nodes}
        ways = [partial(self.connection, node.id, deadline) for node in nodes]
        # The bootstrap servers may know other brokers (KIP-899).
        ways += [
            partial(self._pool.get, ("bootstrap", address), address, deadline)
            for address in self.bootstrap
            if address not in named
        ]
        try:
            return await self._first(ways)
        except AllFailed as all_failed:
            self._check_open()
            errors = all_failed.failures
            said = "; ".join(str(errors[place]) for place in sorted(errors))
            raise ConnectError(f"no broker can be reached: {said}") from None

    async def _first(self, ways: Sequence[Callable[[], Awaitable[Connection]]]) -> Connection:
        # A slower connection stays open: it belongs to its broker.
        return await staggered_race(ways, STAGGER, lambda unneeded: None)

    def _lost(self, connection: Connection) -> None:
        """A connection that ended with an error may mean that its broker has failed."""
        if connection.error is not None:
            self.stale()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client is closed")


def _not_there(name: str, code: ErrorCode, near: str | None) -> ClientError:
    """The error for a topic that can't be used, according to the last response; ``near`` suggests other names."""
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicError(f"topic {name!r} does not exist{near or ''}; create it, or correct its name")
    reason = code.name if code else "none of its partitions has a leader"
    return RequestTimeoutError(f"topic {name!r} can't be used yet: {reason}")
