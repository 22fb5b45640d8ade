"""What all of Admin's calls stand on: the cluster, the deadline of a call, and the way to the right brokers."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ..cluster import Backoff, Cluster
from ..deadline import Deadline
from ..errors import ClosedError, ConfigurationError
from .results import results_or_raise
from .routes import Ask, Node, Route, ToNodes, drive

if TYPE_CHECKING:
    import ssl

    from ottla_protocol.api_keys import ApiKey
    from ottla_protocol.schema import Message

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# The broker's own time for a request ends a little before the client stops waiting for its answer.
_ANSWER_MARGIN: Final = 0.9


class AdminBase:
    """Starting, closing, and asking; the calls themselves are in the modules beside this one."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        *,
        client_id: str = "ottla-admin",
        default_api_timeout_ms: int = 60_000,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
        connections_max_idle_ms: int = 300_000,
        reconnect_backoff_ms: int = 50,
        reconnect_backoff_max_ms: int = 1_000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Options as in the Java client; times in milliseconds.

        :param bootstrap_servers: ``host:port`` of brokers to ask first, with commas between, or a list of them.
        :param client_id: how brokers call this client in their logs and quotas.
        :param default_api_timeout_ms: how long a call may take in all, tries and waits included, unless it is given a
            ``timeout``; that is in seconds.
        :param request_timeout_ms: how long a broker may take for an answer.
        :param retry_backoff_ms: the pause before something is tried again, doubled each time up to
            ``retry_backoff_max_ms``; ``reconnect_backoff_ms`` and its maximum the same for connections.
        :param metadata_max_age_ms: the cluster is looked at anew after so long, if nothing tells earlier.
        :param connections_max_idle_ms: a connection that is not used for so long is closed.
        :param security_protocol: "PLAINTEXT" or "SSL"; with "SSL", ``ssl_context`` or else the system's authorities.

        Raises ConfigurationError for an option that can't be right.
        """
        if default_api_timeout_ms <= 0:
            raise ConfigurationError(f"default_api_timeout_ms must be above 0, not {default_api_timeout_ms}")
        self._timeout = default_api_timeout_ms / 1000
        self._request_timeout = request_timeout_ms / 1000
        self._backoff = Backoff(retry_backoff_ms / 1000, retry_backoff_max_ms / 1000)
        self._running = False
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            connections_max_idle_ms=connections_max_idle_ms,
            reconnect_backoff_ms=reconnect_backoff_ms,
            reconnect_backoff_max_ms=reconnect_backoff_max_ms,
            security_protocol=security_protocol,
            ssl_context=ssl_context,
        )

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

    def _deadline_of(self, timeout: float | None) -> Deadline:
        return Deadline(self._timeout if timeout is None else timeout)

    def _deadline(self, timeout: float | None) -> Deadline:
        """The deadline of a call that begins now. Raises ClosedError unless Admin is running."""
        if not self._running:
            raise ClosedError("this Admin is not running: use `async with`, or await start() first")
        return self._deadline_of(timeout)

    def _broker_ms(self, deadline: Deadline) -> int:
        """What a broker is told as its time for a request, in milliseconds."""
        return max(1, int(deadline.left(self._request_timeout) * 1000 * _ANSWER_MARGIN))

    async def _each(
        self, what: str, keys: Collection[K], route: Route[K], ask: Ask[K, V], deadline: Deadline
    ) -> dict[K, V]:
        """Ask for each item; raises as ``results_or_raise``."""
        outcomes = await drive(keys, route, ask, deadline, self._backoff)
        return results_or_raise(what, outcomes)

    async def _call(
        self, node: int | None, request: Message, deadline: Deadline, version: int | None = None
    ) -> Any:
        """One request to one broker (None: any), without trying again."""
        return await self._cluster.request(node, request, deadline, version=version)

    async def _version(self, node: Node, api: ApiKey, deadline: Deadline) -> int:
        """The version of an API that a request to this broker is going to have."""
        assert node is not None, "the broker is known"
        return (await self._cluster.connection(node, deadline)).version_of(api)

    async def _of_nodes(
        self, what: str, nodes: Iterable[int] | None, ask: Ask[int, V], timeout: float | None
    ) -> dict[int, V]:
        """Ask each of these brokers, or all there are, one question; by their ids."""
        deadline = self._deadline(timeout)
        if nodes is None:
            await self._cluster.fetch_topics((), deadline)
            nodes = sorted(self._cluster.nodes)
        route: ToNodes[int] = ToNodes(self._cluster, lambda node: node)
        return await self._each(what, list(nodes), route, ask, deadline)
