"""Followers fetch: one task for each leader that this broker follows. Kafka's ``ReplicaFetcherThread``.

A fetch asks for all partitions of the leader at once and waits there until one of them has something. What comes goes
into the logs as it is, and the next fetch, which says so, is what the leader counts as the acknowledgement: so it is
sent at once.

Truncation follows KIP-595's rule, as Kafka has it since 2.7: a fetch says the epoch of the follower's last record; a
leader whose log has that epoch ending elsewhere answers with the epoch and end that it has instead, and the follower
cuts its log to where both agree. What each answer does to a partition::

    none                    append, follow the high watermark and the log's start
    diverging epoch         cut the log, ask again
    OFFSET_OUT_OF_RANGE     the leader's log ends before: cut; begins behind: start anew there
    FENCED_LEADER_EPOCH     the leader is in a newer epoch: wait for the controller to tell
    UNKNOWN_LEADER_EPOCH,   the leader has not heard of this epoch, topic or role yet, or hears no more:
    NOT_LEADER_OR_FOLLOWER, ask again after a rest
    UNKNOWN_TOPIC_*,
    INCONSISTENT_TOPIC_ID
    other errors            logged; ask again after a rest

A partition that fails rests alone; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.replica.replicated import ReplicatedPartition, Role
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.fetch_session import FetchSession, SessionRequest
from ottla_protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla_protocol.schema import ZERO_UUID

log = get_logger()

Key = tuple[str, int]

_BY_ID_SINCE: Final = 13
_STATE_SINCE: Final = 15
_DIVERGING_SINCE: Final = 12
_EARLIEST: Final = -2
_LATEST: Final = -1

_NOT_YET: Final = frozenset(
    {
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Two brokers hear of a change at different times: nothing to log."""


class Leader(Protocol):
    """A connection to the leader's broker."""

    @property
    def closed(self) -> bool: ...

    def version_of(self, api_key: int) -> int: ...

    def submit(self, request: Any, *, timeout: float, version: int | None = None) -> Awaitable[Any]: ...


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """``replica.fetch.*`` and ``replica.socket.timeout.ms``."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    backoff_ms: int = 1_000
    socket_timeout_ms: int = 30_000


class _Want(NamedTuple):
    """What a fetch says of a partition; the leader remembers it in the session."""

    topic_id: bytes | None
    offset: int
    last_epoch: int
    start_offset: int
    leader_epoch: int


class _Followed:
    """A partition, and until when it rests."""

    __slots__ = ("partition", "rests_until")

    def __init__(self, partition: ReplicatedPartition) -> None:
        self.partition = partition
        self.rests_until = 0.0


class Fetcher:
    """Fetches from one broker what this one follows there. Owned by the loop thread; one task does everything."""

    def __init__(
        self,
        leader_id: int,
        broker_id: int,
        broker_epoch: Callable[[], int],
        connect: Callable[[int], Awaitable[Leader]],
        settings: FetcherSettings,
        clock: Clock,
        on_disk_error: Callable[[ReplicatedPartition, KafkaError], None],
    ) -> None:
        """``connect`` opens, or gives the open, connection to a broker; it raises ConnectionError."""
        self.leader_id = leader_id
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._on_disk_error = on_disk_error
        self._followed: dict[Key, _Followed] = {}
        self._session: FetchSession[_Want] = FetchSession()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: ReplicatedPartition) -> None:
        """Begin to follow a partition, or go on with it in a new epoch."""
        self._followed[partition.topic, partition.partition] = _Followed(partition)
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def remove(self, key: Key) -> None:
        """Follow a partition no longer; one that isn't followed is no error."""
        if self._followed.pop(key, None) is not None:
            self._changed.set()

    async def close(self) -> None:
        self._followed.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # ---- the loop

    async def _run(self) -> None:
        connection: Leader | None = None
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            ready = {key: each for key, each in self._followed.items() if each.rests_until <= now}
            if not ready:
                await self._rest(
                    min((each.rests_until - now for each in self._followed.values()), default=None)
                )
                continue
            try:
                if connection is None or connection.closed:
                    self._session = FetchSession()
                    connection = await self._connect(self.leader_id)
                await self._fetch(connection, ready)
            except (ConnectionError, TimeoutError) as error:
                log.info("fetching from a leader failed", leader=self.leader_id, reason=str(error))
                self._session.failed()
                await self._rest(self._settings.backoff_ms / 1000)
            except Exception as error:
                # A defect, or an answer that makes no sense: the others of this broker's fetchers go on.
                log.error("fetching from a leader failed", leader=self.leader_id, exc_info=error)
                self._session.failed()
                await self._rest(self._settings.backoff_ms / 1000)

    async def _rest(self, seconds: float | None) -> None:
        """Wait for a change of what is followed, for so long at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _fetch(self, connection: Leader, ready: Mapping[Key, _Followed]) -> None:
        version = connection.version_of(FetchRequest.API_KEY or 1)
        by_id = version >= _BY_ID_SINCE and all(
            each.partition.topic_id != ZERO_UUID for each in ready.values()
        )
        if not by_id:
            version = min(version, _BY_ID_SINCE - 1)
        wanted: dict[Key, _Want] = {}
        for key, each in ready.items():
            try:
                wanted[key] = self._want(each.partition, version)
            except KafkaError as error:
                self._disk_error(each.partition, error)
        session = self._session.request(wanted, by_id=by_id)
        request = self._request(session, version)
        answer: FetchResponse = await connection.submit(
            request, timeout=self._settings.socket_timeout_ms / 1000, version=version
        )
        names = {each.partition.topic_id: key[0] for key, each in ready.items()}
        answers: dict[Key, PartitionData] = {}
        for topic in answer.responses:
            name = names.get(topic.topic_id, "") if by_id else topic.topic
            for data in topic.partitions:
                answers[name, data.partition_index] = data
        if not self._session.answered(answer.error_code, answer.session_id, answers.keys()):
            if answer.error_code == ErrorCode.NONE:
                log.warning("a leader answered what was not asked for", leader=self.leader_id)
            return
        for key, data in answers.items():
            followed = ready[key]
            # What was added, removed or put into another epoch meanwhile is not what the answer is of.
            if (
                self._followed.get(key) is followed
                and followed.partition.leader_epoch == wanted[key].leader_epoch
            ):
                await self._take(connection, followed, data)

    @staticmethod
    def _want(partition: ReplicatedPartition, version: int) -> _Want:
        local = partition.log
        return _Want(
            partition.topic_id,
            local.log_end_offset,
            local.latest_epoch if version >= _DIVERGING_SINCE else -1,
            local.log_start_offset,
            partition.leader_epoch,
        )

    def _request(self, session: SessionRequest[_Want], version: int) -> FetchRequest:
        settings = self._settings
        by_id = version >= _BY_ID_SINCE
        topics: dict[str, FetchTopic] = {}
        for (name, index), want in session.fetch.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(
                    topic=name, topic_id=want.topic_id or ZERO_UUID, partitions=[]
                )
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=want.leader_epoch,
                    fetch_offset=want.offset,
                    last_fetched_epoch=want.last_epoch,
                    log_start_offset=want.start_offset,
                    partition_max_bytes=settings.max_bytes,
                )
            )
        forgotten: dict[tuple[str, bytes], ForgottenTopic] = {}
        for (name, index), topic_id in session.forgotten:
            key = (name, topic_id or ZERO_UUID)
            if key not in forgotten:
                forgotten[key] = ForgottenTopic(
                    topic="" if by_id else name, topic_id=key[1] if by_id else ZERO_UUID, partitions=[]
                )
            forgotten[key].partitions.append(index)
        states = version >= _STATE_SINCE
        return FetchRequest(
            replica_id=-1 if states else self._broker_id,
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch())
            if states
            else ReplicaState(),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    # ---- answers

    async def _take(self, connection: Leader, followed: _Followed, data: PartitionData) -> None:
        partition = followed.partition
        if partition.role is not Role.FOLLOWER:
            return
        try:
            code = data.error_code
            if code == ErrorCode.NONE:
                if data.diverging_epoch.end_offset >= 0:
                    self._cut(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                else:
                    partition.append_from_leader(
                        memoryview(b"") if data.records is None else data.records,
                        data.high_watermark,
                        data.log_start_offset,
                    )
            elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._find_range(connection, partition)
            else:
                self._failed(followed, code)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._disk_error(partition, error)
            else:
                log.error(
                    "a leader's records are refused",
                    topic=partition.topic,
                    partition=partition.partition,
                    leader=self.leader_id,
                    reason=error.message,
                )
                self._let_rest(followed)

    def _cut(self, partition: ReplicatedPartition, epoch: int, end_offset: int) -> None:
        """Cut to where the leader's ``epoch`` ends, in its log or in this one, whichever comes first.

        The next fetch finds out whether both agree below that, and if not, cuts again.
        """
        own_epoch, own_end = partition.log.epoch_end_offset(epoch)
        # Where nothing here is as old as that epoch, all there is, is another history.
        target = min(end_offset, partition.log.log_start_offset if own_epoch < 0 else own_end)
        log.info(
            "log differs from the leader's",
            topic=partition.topic,
            partition=partition.partition,
            leader=self.leader_id,
            leaders_epoch=epoch,
            leaders_end=end_offset,
            cut_to=target,
        )
        partition.truncate(target)

    async def _find_range(self, connection: Leader, partition: ReplicatedPartition) -> None:
        """This log ends where the leader has nothing: behind its end, or before its start."""
        end = await self._offset(connection, partition, _LATEST)
        if end < partition.log.log_end_offset:
            log.warning(
                "the leader's log is shorter: an unclean election, or a lost disk",
                topic=partition.topic,
                partition=partition.partition,
                leader=self.leader_id,
                leaders_end=end,
                end_offset=partition.log.log_end_offset,
            )
            partition.truncate(end)
            return
        start = await self._offset(connection, partition, _EARLIEST)
        if start > partition.log.log_end_offset:
            partition.restart_at(start)

    async def _offset(self, connection: Leader, partition: ReplicatedPartition, timestamp: int) -> int:
        request = ListOffsetsRequest(
            replica_id=self._broker_id,
            topics=[
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.partition,
                            current_leader_epoch=partition.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        answer = await connection.submit(request, timeout=self._settings.socket_timeout_ms / 1000)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return int(found.offset)

    def _failed(self, followed: _Followed, code: int) -> None:
        partition = followed.partition
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            # The controller tells of the new epoch; until then there is nothing to ask.
            self.remove((partition.topic, partition.partition))
            return
        if code not in _NOT_YET:
            log.warning(
                "a leader refuses a fetch",
                topic=partition.topic,
                partition=partition.partition,
                leader=self.leader_id,
                error=ErrorCode(code).name,
            )
        self._let_rest(followed)

    def _let_rest(self, followed: _Followed) -> None:
        followed.rests_until = self._clock.monotonic() + self._settings.backoff_ms / 1000

    def _disk_error(self, partition: ReplicatedPartition, error: KafkaError) -> None:
        self.remove((partition.topic, partition.partition))
        self._on_disk_error(partition, error)
