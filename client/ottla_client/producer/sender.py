"""Sends batches, with several requests in flight to each broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import RETRIABLE, ErrorCode, LocalProtocolError, error_code
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ..deadline import Deadline
from ..errors import BrokerError, ClientError, UnknownTopicError, UnsupportedApiError
from ..types import ProducerIdAndEpoch
from .outcomes import Outcome, refusal
from .queue import Answer
from .settings import REQUEST_OVERHEAD

if TYPE_CHECKING:
    from ..cluster import Cluster
    from ..connection import Connection
    from .accumulator import Accumulator
    from .batch import Batch
    from .queue import PartitionQueue
    from .sequences import ProducerIdHolder
    from .settings import ProducerSettings
    from .transactions import Transactions

_RECORD_BATCHES = 3
"""The first version of ProduceRequest with record batches."""
_ADD_SOON = 0.001
"""Seconds before the partitions of open batches are added to their transaction. Those that get records meanwhile go
into the same request, and a batch that is full or has lingered asks at once."""

_log = logging.getLogger("ottla_client.producer")


class Sender:
    """Routes batches from the accumulator to their leaders, and owns tasks and timers."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        settings: ProducerSettings,
        identities: ProducerIdHolder | None,
        on_fatal: Callable[[Exception], None],
        transactions: Transactions | None = None,
    ) -> None:
        """``identities`` None: the producer needs no id, or its transactions get one."""
        self.cluster = cluster
        self.accumulator = accumulator
        self.settings = settings
        self._identities = identities
        self._on_fatal = on_fatal
        self.transactions = transactions
        self.meters = accumulator.meters
        self.by_topic = accumulator.by_topic
        self.loop = asyncio.get_running_loop()
        self._nodes: dict[int, NodeSender] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[object, asyncio.TimerHandle] = {}
        self._not_added: list[PartitionQueue] = []
        """Queues whose partitions may be missing in the transaction."""
        self._reviving: set[str] = set()
        self._identifying = False
        self.stopped = False
        accumulator.on_ready = self.route
        accumulator.on_open = self._opened
        self._forget_cluster = cluster.on_change(self._metadata_changed)
        self._need_identity()

    async def stop(self) -> None:
        """End all tasks and timers."""
        self.stopped = True
        self._forget_cluster()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def route(self, queue: PartitionQueue) -> None:
        """``queue`` may have a batch to send: pass it to its leader."""
        if not queue.batches or self.stopped:
            return
        if self.transactions is not None and not self.transactions.may_send(queue):
            return  # later, if its transaction lacks the partition
        leader = self.cluster.leader(queue.topic, queue.partition)
        if leader is None:
            self._no_leader(queue)
            return
        node = self._nodes.get(leader)
        if node is None:
            node = self._nodes[leader] = NodeSender(self, leader)
        node.add(queue)

    def route_later(self, queue: PartitionQueue, delay: float) -> None:
        """Route ``queue`` after ``delay`` seconds."""
        if queue not in self._timers and not self.stopped:
            self._timers[queue] = self.loop.call_later(delay, self._route_now, queue)

    def _route_now(self, queue: PartitionQueue) -> None:
        self._timers.pop(queue, None)
        self.route(queue)

    def route_all(self) -> None:
        for queue in self.accumulator.all_queues():
            if queue.batches:
                self.route(queue)

    def _metadata_changed(self) -> None:
        for name, topic in self.accumulator.topics.items():
            found = self.cluster.topic(name)
            if found is not None and found.partitions:
                self.accumulator.topic(name, found.partitions)
            if any(queue.batches for queue in topic.queues.values()):
                for queue in topic.queues.values():
                    self.route(queue)

    def _no_leader(self, queue: PartitionQueue) -> None:
        """The partition has no leader. The next change of the metadata routes the queue again."""
        name = queue.topic
        self.cluster.stale(name)
        if self.cluster.topic(name) is None:
            if self.cluster.topic_error(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                queue.batches[0].last_error = UnknownTopicError(f"topic {name!r} does not exist")
            if self.settings.allow_auto_create_topics and name not in self._reviving:
                self._reviving.add(name)
                self.spawn(self._revive(name))

    async def _revive(self, name: str) -> None:
        """Let the brokers create a topic again that was deleted, if their settings allow it."""
        try:
            await self.cluster.fetch_topics(
                (name,), Deadline(self.settings.request_timeout), allow_auto_create=True
            )
        except ClientError as error:
            _log.debug("looking up the deleted topic %r failed: %s", name, error)
        finally:
            await asyncio.sleep(self.cluster.backoff.after(1))
            self._reviving.discard(name)
        self.route_all()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` as a task that ends with the sender. An exception in it is a defect, and stops the producer."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broke(error)

    def broke(self, error: BaseException) -> None:
        """A defect: stop the producer."""
        _log.error("the producer's sender broke", exc_info=error)
        self._on_fatal(error if isinstance(error, Exception) else RuntimeError(str(error)))

    def _opened(self, queue: PartitionQueue) -> None:
        """A batch was opened: set the timers for its transaction, linger and expiry."""
        if self.transactions is not None and not self.transactions.manager.is_version_2:
            self._not_added.append(queue)
            if "partitions" not in self._timers:
                self._timers["partitions"] = self.loop.call_later(_ADD_SOON, self._add_partitions)
        if self.accumulator.lingering and "linger" not in self._timers:
            self._timers["linger"] = self.loop.call_later(self.settings.linger, self._lingered)
        if "expiry" not in self._timers:
            self._timers["expiry"] = self.loop.call_later(self.settings.delivery_timeout, self._expire)

    def _add_partitions(self) -> None:
        """Have the partitions of open batches added to the transaction while the batches fill."""
        del self._timers["partitions"]
        self.add_partitions()

    def add_partitions(self) -> bool:
        """Ask for the partitions of the batches that were opened since; False: there were none."""
        if not self._not_added:
            return False
        assert self.transactions is not None
        opened, self._not_added = self._not_added, []
        for queue in opened:
            if queue.batches:
                self.transactions.may_send(queue)
        return True

    def _lingered(self) -> None:
        del self._timers["linger"]
        now = monotonic()
        due = self.accumulator.lingered(now)
        if due is not None:
            self._timers["linger"] = self.loop.call_later(due - now, self._lingered)

    def _expire(self) -> None:
        del self._timers["expiry"]
        now = monotonic()
        due = self.accumulator.expire(now)
        if due is not None:
            # Expire many batches at once, up to 50 ms late.
            self._timers["expiry"] = self.loop.call_later(max(due - now, 0.05), self._expire)
        self._need_identity()
        self.route_all()

    def _need_identity(self) -> None:
        if self._identities is None or self._identities.current is not None:
            return
        if not (self._identifying or self.stopped):
            self._identifying = True
            self.spawn(self._identify())

    async def _identify(self) -> None:
        """Ask the cluster for a producer id until it answers; buffered batches may expire meanwhile."""
        assert self._identities is not None
        failures = 0
        # Without a transaction the timeout has no meaning; the Java client sends the maximum.
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        while True:
            try:
                answer = await self.cluster.request(None, request, Deadline(self.settings.request_timeout))
                code = error_code(answer.error_code)
                if code == ErrorCode.NONE:
                    break
                error: Exception = refusal(code, "the cluster", None, bytes_sent=0)
                if code not in RETRIABLE:
                    self._on_fatal(error)
                    return
            except UnsupportedApiError as missing:
                fatal = UnsupportedApiError(
                    f"{missing}; for brokers before 0.11 set enable_idempotence=False"
                )
                fatal.__cause__ = missing
                self._on_fatal(fatal)
                return
            except (ClientError, TimeoutError) as failed:
                error = failed
            failures += 1
            _log.debug("no producer id yet: %s", error)
            await asyncio.sleep(self.cluster.backoff.after(failures))
        self._identifying = False
        self._identities.current = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        self.route_all()

    def answered(self, queue: PartitionQueue, batch: Batch, answer: Answer, now: float) -> None:
        """A response for ``batch`` has come."""
        outcome = queue.answered(batch, answer, now)
        if outcome is Outcome.MOVED:
            self.cluster.stale(queue.topic)
        elif outcome is Outcome.SPLIT and batch.parts:
            self.accumulator.shrink(self.accumulator.topics[queue.topic], batch.size)
        elif outcome is Outcome.STOP:
            assert batch.last_error is not None
            self._on_fatal(batch.last_error)
        self._next(queue)

    def count(self, chosen: list[tuple[PartitionQueue, Batch]], now: float) -> None:
        meters = self.meters
        meters.totals["request-total"] += 1
        for queue, batch in chosen:
            meters.totals["batch-total"] += 1
            for totals in (meters.totals, self.by_topic[queue.topic].totals):
                totals["record-send-total"] += batch.count
                totals["byte-total"] += batch.size
                if batch.attempts > 1:
                    totals["record-retry-total"] += batch.count
            if batch.attempts <= 1:
                meters.time("record-queue-time", now - batch.created, now)

    @property
    def in_flight(self) -> int:
        """Requests that brokers have not answered."""
        return sum(node.in_flight for node in self._nodes.values())

    def lost(self, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        """No response for ``batch`` will come."""
        queue.lost(batch, error, monotonic())
        self.cluster.stale(queue.topic)
        self._next(queue)

    def _next(self, queue: PartitionQueue) -> None:
        """A batch of ``queue`` is no longer in flight: send the next one; it may need a new producer id."""
        if self.transactions is not None:
            self.transactions.returned(queue)
        self._need_identity()
        if queue.batches:
            self.route(queue)


class NodeSender:
    """One broker's requests. What is routed here in a turn of the loop is sent in the next one, without a task.

    A task connects, waits while the broker throttles, or until the socket takes more of a request without an answer.
    """

    def __init__(self, sender: Sender, node_id: int) -> None:
        self._sender = sender
        self._settings = settings = sender.settings
        self._cluster = sender.cluster
        self._node_id = node_id
        self._acks = settings.required_acks
        self._codec = settings.codec
        self._timeout = settings.request_timeout
        self._most_in_flight = settings.max_in_flight_requests_per_connection
        self._queues: dict[PartitionQueue, None] = {}
        """Queues that may have batches to send, served in turn."""
        self._in_flight = 0
        self._throttled_until = 0.0
        """The broker throttles this client until then (KIP-219)."""
        self._connection: Connection | None = None
        self._busy = False
        """Whether a turn is due in which batches are sent, or a task that leads to one."""

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def add(self, queue: PartitionQueue) -> None:
        """``queue`` may have a batch to send."""
        self._queues[queue] = None
        if not self._busy and self._in_flight < self._most_in_flight:
            self._busy = True
            self._sender.loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        """Send batches while the broker may have more requests."""
        try:
            while self._queues and self._in_flight < self._most_in_flight and not self._sender.stopped:
                connection, now = self._connection, monotonic()
                if connection is None or connection.closed or now < self._throttled_until:
                    self._sender.spawn(self._connect())
                    return
                chosen = self._choose(now)
                if chosen and self._send(connection, chosen, now) and self._acks == 0:
                    if connection.is_full:
                        self._sender.spawn(self._drain(connection, chosen))
                        return
                    self._written(chosen)
            self._busy = False
        except Exception as error:
            self._sender.broke(error)

    async def _connect(self) -> None:
        failures = 0
        while self._queues:
            await asyncio.sleep(max(0.0, self._throttled_until - monotonic()))
            try:
                self._connection = await self._cluster.connection(self._node_id, Deadline(self._timeout))
                break
            except (ClientError, TimeoutError) as error:
                failures += 1
                await self._unreachable(error, failures)
        self._send_all()

    async def _drain(self, connection: Connection, chosen: list[tuple[PartitionQueue, Batch]]) -> None:
        try:
            await connection.drain()
        except ClientError as error:
            self._lose(chosen, error)
        else:
            self._written(chosen)
        self._send_all()

    async def _unreachable(self, error: Exception, failures: int) -> None:
        """The broker can't be reached: after a back-off, see whether other brokers lead its partitions."""
        self._cluster.stale()
        for queue in self._queues:
            if queue.batches:
                queue.batches[0].last_error = error
        await asyncio.sleep(self._cluster.backoff.after(failures))
        for queue in list(self._queues):
            self._unless_moved(queue)

    def _unless_moved(self, queue: PartitionQueue) -> bool:
        """Whether this broker leads the partition, and may have its batches; if not, route the queue again."""
        if not queue.batches:  # dropped by an abort
            self._queues.pop(queue, None)
            return False
        transactions = self._sender.transactions
        if self._cluster.leader(queue.topic, queue.partition) == self._node_id and (
            transactions is None or transactions.may_send(queue)
        ):
            return True
        self._queues.pop(queue, None)
        self._sender.route(queue)
        return False

    def _choose(self, now: float) -> list[tuple[PartitionQueue, Batch]]:
        """Start a batch of each partition, up to max_request_size in all, in the order of the queues."""
        chosen: list[tuple[PartitionQueue, Batch]] = []
        room = self._settings.max_request_size - REQUEST_OVERHEAD
        topics = self._sender.accumulator.topics
        for queue in list(self._queues):
            if not self._unless_moved(queue):
                continue
            batch = queue.ready(now)
            if batch is None:
                # The next response, batch or linger brings the queue back; only a back-off needs a timer.
                del self._queues[queue]
                if queue.batches and now < queue.not_before:
                    self._sender.route_later(queue, queue.not_before - now)
                continue
            size = batch.expected_size
            if chosen and size > room:
                break
            del self._queues[queue]
            if batch is queue.tail:
                self._sender.accumulator.close(topics[queue.topic], queue)
            batch, identity = queue.start_next()
            try:
                batch.encode(self._codec, self._settings.compression_level, identity)
            except LocalProtocolError as error:
                queue.refused(batch, error)
                self._sender.route(queue)
                continue
            chosen.append((queue, batch))
            room -= batch.size
            if queue.batches:
                self._queues[queue] = None
        return chosen

    def _send(self, connection: Connection, chosen: list[tuple[PartitionQueue, Batch]], now: float) -> bool:
        """Send one request. Returns whether it was sent; if not, its batches are failed or queued again."""
        topics: dict[str, list[PartitionProduceData]] = {}
        for queue, batch in chosen:
            topics.setdefault(queue.topic, []).append(
                PartitionProduceData(index=queue.partition, records=batch.encoded)
            )
        request = ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        try:
            transactions = self._sender.transactions
            version = (
                connection.version_of(ApiKey.PRODUCE)
                if transactions is None
                else transactions.produce_version(connection)
            )
            if version < _RECORD_BATCHES:
                raise UnsupportedApiError(
                    f"{connection.host}:{connection.port} is older than Kafka 0.11 and doesn't support record batches"
                )
            if self._acks == 0:
                connection.submit(request, timeout=self._timeout)
            else:
                connection.call(
                    request, partial(self._answered, chosen, now), timeout=self._timeout, version=version
                )
                self._in_flight += 1
        except UnsupportedApiError as error:
            for queue, batch in chosen:
                queue.refused(batch, error)
                self._sender.route(queue)
            return False
        except ClientError as error:
            self._lose(chosen, error)
            return False
        self._sender.count(chosen, now)
        return True

    def _written(self, chosen: list[tuple[PartitionQueue, Batch]]) -> None:
        """The socket has a request without an answer."""
        now = monotonic()
        for queue, batch in chosen:
            self._sender.answered(queue, batch, Answer(0), now)

    def _answered(
        self,
        chosen: list[tuple[PartitionQueue, Batch]],
        since: float,
        response: Any,
        error: Exception | None,
    ) -> None:
        self._in_flight -= 1
        now = monotonic()
        self._sender.meters.time("request-latency", now - since, now)
        try:
            if error is not None:
                self._lose(chosen, error)
            else:
                self._handle(chosen, response, now)
        except Exception as broken:
            for _, batch in chosen:
                batch.fail(broken)  # it may be in no queue now
            self._sender.broke(broken)
        if self._queues and not self._busy:
            self._busy = True
            self._sender.loop.call_soon(self._send_all)

    def _handle(self, chosen: list[tuple[PartitionQueue, Batch]], response: Any, now: float) -> None:
        if response.throttle_time_ms > 0:
            seconds = response.throttle_time_ms / 1000
            self._sender.meters.time("throttle", seconds, now)
            self._throttled_until = now + seconds
        answers = {
            (topic.name, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        for queue, batch in chosen:
            found = answers.get((queue.topic, queue.partition))
            if found is None:
                missing = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's response lacks {queue}")
                self._sender.lost(queue, batch, missing)
                continue
            answer = Answer(
                found.error_code,
                found.base_offset,
                found.log_append_time_ms,
                found.error_message,
                [(each.batch_index, each.batch_index_error_message) for each in found.record_errors],
            )
            self._sender.answered(queue, batch, answer, now)

    def _lose(self, chosen: list[tuple[PartitionQueue, Batch]], error: Exception) -> None:
        for queue, batch in chosen:
            self._sender.lost(queue, batch, error)
