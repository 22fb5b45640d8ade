"""``metrics.listener``: ``/metrics``, ``/lag``, ``/shares`` and ``/health/live``, ``ready`` and ``process`` over HTTP.

The listener opens before the logs are loaded, so that a long recovery can be watched. If its port is taken, the broker
goes on without it and tries again: metrics must never keep a broker from starting.

One scrape's text is made in slices of a few milliseconds; scrapers that come meanwhile share it. A flood of requests
for a page doesn't make it all the time (:class:`.RenderThrottle`).
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla_broker.events import get_logger
from ottla_broker.metrics.clients import ClientCollector
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.metrics.health import STARTING, STOPPING, Problem, problems
from ottla_broker.metrics.lag import LagCollector
from ottla_broker.metrics.lag_page import lag_page
from ottla_broker.metrics.loop_monitor import LoopMonitor
from ottla_broker.metrics.partitions import PartitionCollector
from ottla_broker.metrics.render_throttle import RenderThrottle
from ottla_broker.metrics.shares import ShareCollector, shares_page
from ottla_broker.metrics.state import StateCollector
from ottla_broker.metrics.traffic import TrafficCollector, process_facts
from ottla_broker.metrics.windows import Windows
from ottla_broker.network.acceptor import ListenError, open_listener
from ottla_broker.tasks import Tasks, TimeSlice
from ottla_protocol.aio.http_server import HttpServer, Page, json_page, text_page
from ottla_protocol.prometheus import CONTENT_TYPE

if TYPE_CHECKING:
    from ottla_broker.clock import Clock
    from ottla_broker.metrics.sources import Collector, Sources
    from ottla_broker.network.connection_quotas import ConnectionQuotas

_RETRY_SECONDS: Final = 10.0
_BACKLOG: Final = 16

_log = get_logger()


class MetricsService:
    """Owned by the loop thread. :meth:`start`, then :meth:`serve` once the broker runs.

    Attributes:
        address: host and port in use; None while the port is taken.
    """

    def __init__(
        self, host: str, port: int, max_series: int, clock: Clock, quotas: ConnectionQuotas | None = None
    ) -> None:
        """``quotas``: those of the broker's listeners, for the limits of single addresses."""
        self.address: tuple[str, int] | None = None
        self._wanted = (host, port)
        self._max_series = max_series
        self._clock = clock
        self._started = clock.monotonic()
        self._computing = clock.monotonic
        self._sources: Sources | None = None
        self._prepare: Sequence[Callable[[], Awaitable[None]]] = ()
        self._collectors: Sequence[Collector] = ()
        self._monitor: LoopMonitor | None = None
        self._stopping = False
        self._rendering: asyncio.Task[Sequence[bytes]] | None = None
        self._failed: set[str] = set()
        self._tasks = Tasks()
        self._scrapes, lags, processes, shares = (RenderThrottle(clock) for _ in range(4))
        self._http = HttpServer(
            {
                "/metrics": self._metrics,
                "/health/live": self._live,
                "/health/ready": self._ready,
                "/health/process": partial(self._shown, processes, process_page),
                "/shares": partial(self._shown, shares, shares_page),
            },
            {"/lag": partial(self._shown, lags, lag_page)},
            failed=lambda path, error: _log.error("a page could not be made", path=path, exc_info=error),
            timeout=clock.timeout,
        )
        if quotas is not None:
            self._http.limit = quotas.limit_of
            self._http.is_too_early = quotas.is_too_early

    async def start(self) -> None:
        """Open the listener, now or, if its port is taken, as soon as it is free."""
        if not await self._open():
            self._tasks.start(self._keep_trying())

    async def _open(self) -> bool:
        host, port = self._wanted
        try:
            sock = open_listener(
                host, port, _BACKLOG, key="metrics.listener", advice="choose another for this broker"
            )
        except ListenError as error:
            if "port" not in self._failed:
                self._failed.add("port")
                _log.warning("no metrics are served; the broker tries again", reason=str(error))
            return False
        self.address = sock.getsockname()[:2]
        await self._http.start(sock=sock)
        _log.info("metrics are served", address=f"{self.address[0]}:{self.address[1]}")
        return True

    async def _keep_trying(self) -> None:
        while True:
            await self._clock.sleep(_RETRY_SECONDS)
            if await self._open():
                return

    def serve(self, sources: Sources) -> None:
        """Show the metrics of a broker that has started."""
        self._computing = sources.cpu_seconds
        windows = Windows()
        monitor = self._monitor = LoopMonitor(self._clock, sources.cpu_seconds)
        monitor.start()
        traffic = TrafficCollector(sources, windows, monitor)
        state = StateCollector(sources, windows)
        partitions = PartitionCollector(sources)
        self._prepare = (traffic.prepare, partitions.prepare)
        self._collectors = (
            state.broker,
            traffic.loop,
            traffic.process,
            traffic.requests,
            traffic.connections,
            state.controller,
            state.store,
            state.disks,
            state.transactions,
            traffic.topics,
            state.groups,
            ShareCollector(sources).collect,
            LagCollector(sources).collect,
            ClientCollector(sources).collect,
            partitions.collect,
        )
        self._sources = sources

    def stopping(self) -> None:
        """Report from now on that the broker isn't ready: it is about to stop."""
        self._stopping = True

    async def close(self) -> None:
        if self._monitor is not None:
            self._monitor.stop()
        await self._tasks.close()
        await self._http.close()
        if self._rendering is not None:
            self._rendering.cancel()
            await asyncio.wait([self._rendering])

    # The pages

    async def _live(self) -> Page:
        """Alive: the event loop has answered."""
        return json_page(
            200, {"status": "live", "uptime_seconds": round(self._clock.monotonic() - self._started, 3)}
        )

    async def _ready(self) -> Page:
        found = self._problems()
        if not found:
            return json_page(200, {"status": "ready", "problems": []})
        return json_page(503, {"status": "not ready", "problems": [each._asdict() for each in found]})

    def _problems(self) -> Sequence[Problem]:
        if self._stopping:
            return [STOPPING]
        return [STARTING] if self._sources is None else problems(self._sources)

    def _running(self) -> Sources | Page:
        """Return what to show, or why there is nothing yet."""
        if self._sources is None or self._stopping:
            return text_page(503, "the broker is stopping" if self._stopping else "the broker is starting")
        return self._sources

    async def _shown(
        self, throttle: RenderThrottle, page: Callable[..., Awaitable[Page]], *query: Mapping[str, str]
    ) -> Page:
        """A page of the running broker, which isn't made too often."""
        sources = self._running()
        if isinstance(sources, Page):
            return sources
        async with throttle:
            return await page(sources, *query)

    async def _metrics(self) -> Page:
        sources = self._running()
        if isinstance(sources, Page):
            return sources
        rendering = self._rendering
        if rendering is None:
            rendering = self._rendering = asyncio.ensure_future(self._render())
            rendering.add_done_callback(self._rendered)
        # Shielded: others may wait for the same text.
        return Page(200, CONTENT_TYPE, await asyncio.shield(rendering))

    def _rendered(self, rendering: asyncio.Future[Sequence[bytes]]) -> None:
        self._rendering = None
        if not rendering.cancelled():
            # Retrieved, in case every scraper has gone.
            rendering.exception()

    async def _render(self) -> Sequence[bytes]:
        async with self._scrapes:
            return await self.render()

    async def render(self) -> Sequence[bytes]:
        """The text of one scrape."""
        clock = self._clock
        since = clock.monotonic()
        out = Exposition(self._max_series)
        for prepare in self._prepare:
            await prepare()
        computing = self._computing
        held, since_turn = 0.0, computing()
        time_slice = TimeSlice(clock)
        for collector in self._collectors:
            for _ in self._steps(collector, out):
                if time_slice.is_over:
                    held = max(held, computing() - since_turn)
                    await time_slice.next()
                    since_turn = computing()
        out.gauge(
            "ottla_metrics_dropped_series", "Samples left out of this scrape because of metrics.max.series."
        ).add(out.dropped)
        out.gauge("ottla_metrics_scrape_seconds", "How long this scrape took, with pauses for requests.").add(
            round(clock.monotonic() - since, 6)
        )
        out.gauge(
            "ottla_metrics_held_seconds_max",
            "The most processor time that this scrape took at a time, before other requests had their turn.",
        ).add(round(max(held, computing() - since_turn), 6))
        await asyncio.sleep(0)
        return out.chunks()

    def _steps(self, collector: Collector, out: Exposition) -> Iterator[None]:
        """A collector's steps. One that fails is logged once, and the others go on."""
        try:
            yield from collector(out)
        except Exception as error:
            name = getattr(collector, "__name__", "")
            if name not in self._failed:
                self._failed.add(name)
                _log.error("metrics are missing: a collector failed", collector=name, exc_info=error)


async def process_page(sources: Sources) -> Page:
    """``/health/process``, which ``ottla cluster doctor`` asks; ``/metrics`` has the same among thousands of others.

    It says which broker answers, because an address such as 127.0.0.1:9404 may be another one's where it is asked. A
    number is null where the system doesn't say it, or sets no limit.
    """
    facts = await sources.background.run(process_facts, sources.logs.files)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return json_page(
        200,
        {
            "cluster_id": sources.metadata.cluster_id,
            "broker_id": sources.config.broker_id,
            "open_descriptors": None if facts is None else facts.descriptors,
            "max_descriptors": None if limit == resource.RLIM_INFINITY else limit,
            "resident_bytes": None if facts is None else facts.resident_bytes,
        },
    )
