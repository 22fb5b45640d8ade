"""ShareFetch: acquire records of a share group, and acknowledge earlier ones (KIP-932).

The response has whole batches, and the ranges of offsets in them that the member has acquired. A fetch that finds
nothing waits for new records, or for records that others release. Acknowledgements in the request are answered with it,
once they are persisted. Version 2 can ask for an exact number of records (KIP-1206), and renew locks (KIP-1222).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from ottla_broker.api_parts.share_requests import (
    AckResults,
    acknowledge,
    acknowledgements,
    check_member,
    endpoints,
    finish,
    leader_of,
    own_session,
    services,
    share_of,
)
from ottla_broker.api_parts.share_services import ShareServices
from ottla_broker.coordinator.share.fetched import spread
from ottla_broker.coordinator.share.in_flight import Acknowledgement
from ottla_broker.coordinator.share.sessions import FINAL, INITIAL, ShareSession, ShareSessions
from ottla_broker.coordinator.share.share_partition import Acquired, SharePartition, copy_of
from ottla_broker.coordinator.share.state_batches import ShareKey, TopicIdPartition
from ottla_broker.metadata.client_quotas import QuotaKind
from ottla_broker.replica.delayed_fetch import DelayedFetch
from ottla_broker.requests.api import GROUP, READ, TOPIC, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, pause
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import share_fetch as wire

API = Api(
    78,
    (1, 2),
    feature="share groups",
    coordinated=True,
    needs={GROUP: READ, TOPIC: READ},
    # About 3,500 partitions, which are read in one turn.
    memory=MiB,
    quota=QuotaKind.FETCH,
    spread=spread,
)

_EXACT = 1
"""The acquire mode that never exceeds the number of records."""
_TURN: Final = 500
"""After so much work others go first: so many batches that are looked at, or partitions without any."""
_MOST_RANGES: Final = 5_000
"""How many ranges of acquired records a response has, and those of one partition more."""
_LOADED: Final = 40
"""The work of a share partition whose state has to be read first."""


async def handle(ctx: RequestContext, request: wire.ShareFetchRequest) -> wire.ShareFetchResponse:
    wanted: dict[TopicIdPartition, list[Acknowledgement]] = {}
    places: list[TopicIdPartition] = []
    for topic in request.topics:
        for each in topic.partitions:
            place = bytes(topic.topic_id), each.partition_index
            places.append(place)
            if each.acknowledgement_batches:
                wanted[place] = acknowledgements(each.acknowledgement_batches)
    try:
        member = check_member(ctx, request.group_id, request.member_id)
        shares = services(ctx)
        session = _session(ctx, shares.sessions, request, member, places, bool(wanted))
    except KafkaError as error:
        return wire.ShareFetchResponse(error_code=error.code, error_message=error.message)
    return await _ShareFetch(ctx, shares, request, session).serve(wanted)


def _session(
    ctx: RequestContext,
    sessions: ShareSessions,
    request: wire.ShareFetchRequest,
    member: tuple[str, str],
    places: list[TopicIdPartition],
    acknowledges: bool,
) -> ShareSession:
    """Begin or find the session of a member, with the request's partitions. Raises KafkaError."""
    group_id, member_id = member
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A ShareFetch that renews locks fetches nothing: its limits of bytes and records must be 0.",
        )
    epoch = request.share_session_epoch
    if epoch != INITIAL:
        session = sessions.find(group_id, member_id, epoch)
        if epoch != FINAL:
            forgotten = [
                (bytes(topic.topic_id), index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ]
            sessions.change(session, places, forgotten)
        return session
    if acknowledges:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "The first ShareFetch of a session can't acknowledge records."
        )
    session = sessions.begin(group_id, member_id, ctx.connection)
    own_session(ctx, sessions, session)
    try:
        sessions.change(session, places, ())
    except KafkaError:
        sessions.end(group_id, member_id)
        raise
    return session


class _Scan:
    """A pass over the session's partitions, which may take several turns of the event loop.

    Attributes:
        places: those that are still to be tried.
        failures: errors of share partitions that closed while the fetch waited for them.
        woken: given once something comes to a partition that had nothing, or the time is up.
    """

    def __init__(
        self,
        places: Iterable[TopicIdPartition],
        records: int,
        size: int,
        failures: dict[TopicIdPartition, KafkaError],
    ) -> None:
        self.places = deque(places)
        self.left_records = records
        self.left_bytes = size
        self.left_ranges = _MOST_RANGES
        self.failures = failures
        self.has_answer = False
        self.woken: Result[None] = Result()

    def wake(self) -> None:
        """Something has come, or the time is up."""
        if not self.woken.given:
            self.woken.give(None)

    @property
    def has_room(self) -> bool:
        """Whether the response may have more."""
        return self.left_records > 0 and self.left_bytes > 0 and self.left_ranges > 0


class _ShareFetch:
    """One request, from its acknowledgements to its response. Owned by the loop thread."""

    def __init__(
        self,
        ctx: RequestContext,
        shares: ShareServices,
        request: wire.ShareFetchRequest,
        session: ShareSession,
    ) -> None:
        self._ctx = ctx
        self._shares = shares
        self._request = request
        self._session = session
        self._answers: dict[TopicIdPartition, wire.PartitionData] = {}
        # What it waits for; a scan of several turns has several.
        self._waiting: list[tuple[DelayedFetch, list[SharePartition]]] = []
        self._until = ctx.services.clock.monotonic() + request.max_wait_ms / 1000

    async def serve(self, wanted: dict[TopicIdPartition, list[Acknowledgement]]) -> wire.ShareFetchResponse:
        """Acknowledge, fetch meanwhile, and answer when both are done."""
        request, session = self._request, self._session
        acknowledged: Result[AckResults] = Result()
        acknowledge(
            self._ctx, self._shares.partitions, session, wanted, request.is_renew_ack, acknowledged.give
        )
        if request.share_session_epoch != FINAL and not request.is_renew_ack:
            has_answer = await self._fetch(may_wait=not wanted)
            if not (has_answer or acknowledged.given or session.ended):
                # What the acknowledgements make available is, once they are persisted.
                await acknowledged
                await self._fetch(may_wait=False)
        self._add_acknowledged(await acknowledged)
        finish(self._shares.sessions, session, request.share_session_epoch)
        return self._response()

    def _add_acknowledged(self, results: AckResults) -> None:
        for place, error in results.items():
            answer = self._answer(place)
            if error is not None:
                answer.acknowledge_error_code = error.code
                answer.acknowledge_error_message = error.message
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self._name_leader(place, answer)

    # Fetching

    async def _fetch(self, may_wait: bool) -> bool:
        """Acquire what there is; wait while there is nothing. Returns whether there is an answer."""
        clock, session = self._ctx.services.clock, self._session
        failures: dict[TopicIdPartition, KafkaError] = {}
        try:
            while True:
                scan = self._new_scan(failures)
                shares = await self._run(scan, may_wait)
                can_wait = may_wait and not session.ended and clock.monotonic() < self._until
                if scan.has_answer or not can_wait or not (shares or self._waiting):
                    return scan.has_answer
                if not scan.woken.given:
                    self._listen(scan, shares)
                    await scan.woken
                failures = self._failures()
                self._leave()
                await pause(_TURN)
        finally:
            self._leave()

    def _new_scan(self, failures: dict[TopicIdPartition, KafkaError]) -> _Scan:
        session, request, quotas = self._session, self._request, self._ctx.services.quotas
        session.rotate()
        size = min(request.max_bytes, self._ctx.services.config.fetch_max_bytes)
        if quotas.enabled:
            most = quotas.most_bytes(self._ctx.connection.principal.name, self._ctx.client_id or "")
            size = size if most is None else min(size, most)
        return _Scan(session.places, max(1, request.max_records), size, failures)

    async def _run(self, scan: _Scan, may_wait: bool) -> list[SharePartition]:
        """Try the partitions; returns those that have nothing, and that nothing waits for yet."""
        work = 0
        shares: list[SharePartition] = []
        while scan.places and not self._session.ended and scan.has_room:
            work += self._try(scan, scan.places.popleft(), shares)
            if work >= _TURN:
                if may_wait and not scan.has_answer:
                    self._listen(scan, shares)
                    shares = []
                await pause(work)
                work = 0
        return shares

    def _try(self, scan: _Scan, place: TopicIdPartition, shares: list[SharePartition]) -> int:
        """Try one partition; returns how much work it was."""
        session = self._session
        try:
            failure = scan.failures.pop(place, None)
            if failure is not None:
                raise failure
            partitions = self._shares.partitions
            is_known = partitions.find(ShareKey(session.group_id, *place)) is not None
            share = share_of(self._ctx, partitions, session, place)
            if self._shares.groups.takes_away(session.group_id, session.member_id, *place):
                # Java's consumer drops what comes after it has lost the partition, and it would stay locked.
                shares.append(share)
                return 1 if is_known else _LOADED
            exact = self._request.share_acquire_mode == _EXACT
            tried = share.fetch(session.member_id, scan.left_records, scan.left_bytes, exact)
        except KafkaError as error:
            scan.has_answer = True
            answer = self._answer(place)
            answer.error_code, answer.error_message = error.code, error.message
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._name_leader(place, answer)
            return 1
        if tried.unfinished:
            scan.places.appendleft(place)
            return _TURN
        work = tried.work + (1 if is_known else _LOADED)
        shares.append(share)
        acquired = tried.acquired
        if acquired is not None:
            scan.has_answer = True
            self._take(place, acquired)
            scan.left_bytes -= len(acquired.records)
            scan.left_ranges -= len(acquired.batches)
            scan.left_records -= sum(each.last - each.first + 1 for each in acquired.batches)
        return work

    def _take(self, place: TopicIdPartition, acquired: Acquired) -> None:
        answer = self._answer(place)
        answer.records = acquired.records
        answer.acquired_records = [
            wire.AcquiredRecords(
                first_offset=each.first, last_offset=each.last, delivery_count=each.deliveries
            )
            for each in acquired.batches
        ]

    def _listen(self, scan: _Scan, shares: list[SharePartition]) -> None:
        """Wait for these partitions too."""
        if not shares:
            return
        places = [share.partition.fetches for share in shares]
        places += [share.partition.committed_fetches for share in shares if self._reads_committed(share)]
        clock = self._ctx.services.clock
        waiting = DelayedFetch(places, 1, clock, scan.wake)
        self._waiting.append((waiting, shares))
        for share in shares:
            share.waiters.add(waiting)
        waiting.start(max(0, int((self._until - clock.monotonic()) * 1000)) + 1)

    def _reads_committed(self, share: SharePartition) -> bool:
        return self._shares.partitions.settings_of(share.key.group_id).read_committed

    def _failures(self) -> dict[TopicIdPartition, KafkaError]:
        """The errors of those that closed while it waited for them."""
        failures: dict[TopicIdPartition, KafkaError] = {}
        for _, shares in self._waiting:
            for share in shares:
                if share.failure is not None:
                    failures[share.key.topic_id, share.key.partition] = copy_of(share.failure)
        return failures

    def _leave(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each, shares in waiting:
            each.abandon()
            for share in shares:
                share.waiters.discard(each)

    # The response

    def _answer(self, place: TopicIdPartition) -> wire.PartitionData:
        found = self._answers.get(place)
        if found is None:
            found = self._answers[place] = wire.PartitionData(partition_index=place[1])
        return found

    def _name_leader(self, place: TopicIdPartition, answer: wire.PartitionData) -> None:
        leader = leader_of(self._ctx, place)
        if leader is not None:
            answer.current_leader = leader

    def _response(self) -> wire.ShareFetchResponse:
        if self._request.share_session_epoch == INITIAL:
            # The first answer of a session names all its partitions.
            for place in self._session.places:
                self._answer(place)
        topics: dict[bytes, wire.ShareFetchableTopicResponse] = {}
        leaders = []
        for (topic_id, _), answer in self._answers.items():
            topics.setdefault(
                topic_id, wire.ShareFetchableTopicResponse(topic_id=topic_id)
            ).partitions.append(answer)
            if ErrorCode.NOT_LEADER_OR_FOLLOWER in (answer.error_code, answer.acknowledge_error_code):
                leaders.append(answer.current_leader.leader_id)
        return wire.ShareFetchResponse(
            acquisition_lock_timeout_ms=self._shares.partitions.settings_of(self._session.group_id).lock_ms,
            responses=list(topics.values()),
            node_endpoints=endpoints(self._ctx, leaders),
        )
