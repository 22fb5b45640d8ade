"""Shared by Admin's calls: options, the cluster, deadlines, and requests to the right brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from ottla_protocol.printable import shown_name

from ..cluster import Cluster
from ..deadline import Deadline
from ..errors import ClosedError, ConfigurationError
from ..requests.driver import (
    Ask,
    Node,
    Outcomes,
    Route,
    ToController,
    ToCoordinators,
    ToNodes,
    drive,
    with_suggestions,
)
from ..requests.outcomes import outcome_of
from ..settings import DEFAULT_BOOTSTRAP, ConnectionOptions, ConnectionSettings, accepts
from .results import results_or_raise

if TYPE_CHECKING:
    from ottla_protocol.api_keys import ApiKey
    from ottla_protocol.schema import Message

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_BROKER_SHARE: Final = 0.9
"""The broker's share of a request's time, so that its response arrives before the client gives up."""


class AdminOptions(ConnectionOptions, total=False):
    """The keyword arguments of Admin."""

    default_api_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AdminSettings(ConnectionSettings):
    """The options' values; ``Admin`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-admin"
    connections_max_idle_ms: int = 300_000
    default_api_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        ConnectionSettings.__post_init__(self)
        if self.default_api_timeout_ms <= 0:
            raise ConfigurationError(
                f"default_api_timeout_ms must be above 0, not {self.default_api_timeout_ms}"
            )


class AdminBase:
    """Starting, closing, and sending requests. The calls are in the other modules."""

    @accepts(AdminSettings)
    def __init__(
        self, bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP, **options: Unpack[AdminOptions]
    ) -> None:
        """Options as in the Java client.

        :param bootstrap_servers: ``host:port`` of the brokers to try first, separated by commas, or a list.
        :param default_api_timeout_ms: how long a call may take in all, retries included, unless its ``timeout``, in
            seconds, says otherwise.

        All clients have the options of `ConnectionSettings` as well. Raises ConfigurationError for an invalid option.
        """
        settings = AdminSettings.of(options, "Admin")
        self._timeout = settings.default_api_timeout_ms / 1000
        self._request_timeout = settings.request_timeout
        self._running = False
        self._cluster = Cluster(bootstrap_servers, settings)
        self._backoff = self._cluster.backoff

    def __repr__(self) -> str:
        return f"<Admin of {self._cluster}>"

    async def start(self, timeout: float | None = None) -> None:
        """Connect. Raises BootstrapError if none of the bootstrap servers answers within ``timeout`` seconds."""
        try:
            await self._cluster.start(self._deadline_of(timeout))
        except BaseException:
            await self._cluster.close()
            raise
        self._running = True

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        self._running = False
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def unreachable(self) -> str | None:
        """The reason why no broker can be reached; None while one can. Calls wait for one until their deadlines."""
        return self._cluster.unreachable

    def _deadline_of(self, timeout: float | None) -> Deadline:
        return Deadline(self._timeout if timeout is None else timeout)

    def _deadline(self, timeout: float | Deadline | None) -> Deadline:
        """The deadline of a call, which may start now. Raises ClosedError unless Admin is running."""
        if isinstance(timeout, Deadline):
            return timeout
        if not self._running:
            raise ClosedError("this Admin is not running: use `async with`, or await start() first")
        return self._deadline_of(timeout)

    def _broker_ms(self, deadline: Deadline) -> int:
        """The timeout in a request, in milliseconds."""
        return max(1, int(deadline.left(self._request_timeout) * 1000 * _BROKER_SHARE))

    async def _ask_each(
        self,
        what: str,
        keys: Collection[K],
        route: Route[K],
        ask: Ask[K, V],
        timeout: float | Deadline | None,
    ) -> dict[K, V]:
        """Ask about each of ``keys``, in requests along ``route``. Raises as ``results_or_raise``."""
        outcomes = await drive(keys, route, ask, self._deadline(timeout), self._backoff)
        return results_or_raise(what, outcomes)

    async def _ask_once(self, subject: str, request: Message, timeout: float | None) -> Any:
        """Any broker's answer to one request. Raises BrokerError, about ``subject``, for a code in the answer."""

        async def ask(node: Node, _: list[str], deadline: Deadline) -> Outcomes[str, Any]:
            answer = await self._call(node, request, deadline)
            message = getattr(answer, "error_message", None)
            return {subject: outcome_of(answer.error_code, answer, subject, message)}

        return (await self._ask_each(subject, [subject], self._any_broker(), ask, timeout))[subject]

    def _any_broker(self) -> ToNodes[K]:
        """The route to any connected broker."""
        return ToNodes(self._cluster, lambda _: None)

    def _controller(self) -> ToController[K]:
        """The route to the controller."""
        return ToController(self._cluster)

    async def _call(
        self, node: int | None, request: Message, deadline: Deadline, version: int | None = None
    ) -> Any:
        """One request to one broker (None for any), without retries."""
        return await self._cluster.request(node, request, deadline, version=version)

    async def _version(self, node: Node, api: ApiKey, deadline: Deadline) -> int:
        """The version of an API that this broker's connection uses."""
        assert node is not None, "the broker is known"
        return (await self._cluster.connection(node, deadline)).version_of(api)

    async def _ask_nodes(
        self, what: str, nodes: Iterable[int] | None, ask: Ask[int, V], timeout: float | None
    ) -> dict[int, V]:
        """Send a request to each of these brokers, or to all. Returns results by broker id."""
        deadline = self._deadline(timeout)
        if nodes is None:
            await self._cluster.fetch_topics((), deadline)
            nodes = sorted(self._cluster.nodes)
        route: ToNodes[int] = ToNodes(self._cluster, lambda node: node)
        return await self._ask_each(what, list(nodes), route, ask, deadline)

    async def _ask_coordinator(
        self,
        what: str,
        group_id: str,
        ask: Callable[[Node, Deadline], Awaitable[Outcomes[K, V]]],
        timeout: float | Deadline | None,
    ) -> dict[K, V]:
        """One request to a group's coordinator. Raises the group's error, and as ``results_or_raise`` those inside.

        ``ask`` sends it, and raises the group's error.
        """

        async def ask_of(node: Node, _: list[str], deadline: Deadline) -> dict[str, Outcomes[K, V]]:
            return {group_id: await ask(node, deadline)}

        found = await self._ask_each(what, [group_id], ToCoordinators(self._cluster), ask_of, timeout)
        outcomes = await with_suggestions(self._cluster, dict(found[group_id]), self._deadline(timeout))
        return results_or_raise(f"{what} of group {shown_name(group_id)}", outcomes)
