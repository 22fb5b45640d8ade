"""ShareFetch (key 78), versions 1-2: acquire records of a share group, and acknowledge earlier ones (KIP-932).

The response has whole batches, and the ranges of offsets in them that the member has acquired. A fetch that finds
nothing waits for new records, or for records that others release. Acknowledgements in the request are answered with it,
once they are persisted. Version 2 can ask for an exact number of records (KIP-1206), and renew locks (KIP-1222).
"""

from __future__ import annotations

from ottla_broker.coordinator.share.in_flight import Acknowledgement
from ottla_broker.coordinator.share.sessions import FINAL, INITIAL, Place, ShareSession
from ottla_broker.coordinator.share.share_partition import Acquired, SharePartition
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.share_requests import (
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
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.replica.delayed_fetch import DelayedFetch
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

_EXACT = 1
"""The acquire mode that never exceeds the number of records."""


def handle(ctx: RequestContext, request: ShareFetchRequest) -> PendingResponse | ShareFetchResponse:
    wanted: dict[Place, list[Acknowledgement]] = {}
    places: list[Place] = []
    for topic in request.topics:
        for each in topic.partitions:
            place = bytes(topic.topic_id), each.partition_index
            places.append(place)
            if each.acknowledgement_batches:
                wanted[place] = acknowledgements(each.acknowledgement_batches)
    try:
        session = _session(ctx, request, places, bool(wanted))
    except KafkaError as error:
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    return _ShareFetch(ctx, request, session).start(wanted)


def _session(
    ctx: RequestContext, request: ShareFetchRequest, places: list[Place], acknowledges: bool
) -> ShareSession:
    """Begin or find the session, with the request's partitions. Raises KafkaError."""
    group_id, member_id = check_member(ctx, request.group_id, request.member_id)
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A ShareFetch that renews locks fetches nothing: its limits of bytes and records must be 0.",
        )
    epoch = request.share_session_epoch
    sessions = services(ctx).sessions
    if epoch != INITIAL:
        session = sessions.find(group_id, member_id, epoch, ctx.connection.id)
        if epoch != FINAL:
            forgotten = [
                (bytes(topic.topic_id), index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ]
            session.change(places, forgotten)
        return session
    if acknowledges:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "The first ShareFetch of a session can't acknowledge records."
        )
    session = sessions.begin(group_id, member_id, ctx.connection.id)
    own_session(ctx, session)
    session.change(places, ())
    return session


class _ShareFetch:
    """One request, from its acknowledgements to its response. Owned by the loop thread."""

    def __init__(self, ctx: RequestContext, request: ShareFetchRequest, session: ShareSession) -> None:
        self._ctx = ctx
        self._request = request
        self._session = session
        self._pending = PendingResponse()
        self._answers: dict[Place, PartitionData] = {}
        self._waiting: DelayedFetch | None = None
        self._joined: list[SharePartition] = []
        clock = ctx.services.clock
        self._until = clock.monotonic() + request.max_wait_ms / 1000
        self._acknowledged = False
        self._fetched = request.share_session_epoch == FINAL or request.is_renew_ack

    def start(self, wanted: dict[Place, list[Acknowledgement]]) -> PendingResponse:
        self._pending.abandon = self._abandon
        acknowledge(self._ctx, self._session, wanted, self._request.is_renew_ack, self._when_acknowledged)
        if not self._fetched:
            self._fetch(may_wait=not wanted)
        return self._pending

    def _when_acknowledged(self, results: AckResults) -> None:
        for place, error in results.items():
            if error is not None:
                answer = self._answer(place)
                answer.acknowledge_error_code = error.code
                answer.acknowledge_error_message = error.message
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self._name_leader(place, answer)
            else:
                self._answer(place)
        self._acknowledged = True
        finish(self._ctx, self._session, self._request.share_session_epoch)
        self._complete()

    # Fetching

    def _fetch(self, may_wait: bool = True) -> None:
        """Acquire what there is; wait if there is nothing."""
        self._waiting = None
        session, request = self._session, self._request
        left_records = max(1, request.max_records)
        left_bytes = min(request.max_bytes, self._ctx.services.config.fetch_max_bytes)
        found = failed = False
        shares: list[SharePartition] = []
        session.rotate()
        for place in list(session.places) if not session.ended else ():
            if left_records <= 0 or left_bytes <= 0:
                break
            try:
                share = share_of(self._ctx, session, place)
                acquired = share.fetch(
                    session.member_id, left_records, left_bytes, request.share_acquire_mode == _EXACT
                )
            except KafkaError as error:
                failed = True
                answer = self._answer(place)
                answer.error_code, answer.error_message = error.code, error.message
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self._name_leader(place, answer)
                continue
            shares.append(share)
            if acquired is not None:
                found = True
                self._take(place, acquired)
                left_bytes -= len(acquired.records)
                left_records -= sum(each.last - each.first + 1 for each in acquired.batches)
        left = self._until - self._ctx.services.clock.monotonic()
        if found or failed or not may_wait or left <= 0 or not shares:
            self._fetched = True
            self._complete()
        else:
            self._wait(shares, left)

    def _take(self, place: Place, acquired: Acquired) -> None:
        answer = self._answer(place)
        answer.records = acquired.records
        answer.acquired_records = [
            AcquiredRecords(first_offset=each.first, last_offset=each.last, delivery_count=each.deliveries)
            for each in acquired.batches
        ]

    def _wait(self, shares: list[SharePartition], seconds: float) -> None:
        places = [share.partition.fetches for share in shares]
        places += [share.partition.committed_fetches for share in shares if self._reads_committed(share)]
        waiting = self._waiting = DelayedFetch(places, 1, self._ctx.services.clock, self._resume)
        self._joined = shares
        for share in shares:
            share.waiters.add(waiting)
        waiting.start(int(seconds * 1000) + 1)

    def _reads_committed(self, share: SharePartition) -> bool:
        return services(self._ctx).partitions.settings_of(share.key.group_id).read_committed

    def _resume(self) -> None:
        self._leave()
        try:
            self._fetch()
        except Exception as error:
            # A defect of the fetch, not of the append that woke it.
            self._pending.complete(error)

    def _leave(self) -> None:
        waiting, self._waiting = self._waiting, None
        joined, self._joined = self._joined, []
        if waiting is not None:
            for share in joined:
                share.waiters.discard(waiting)

    def _abandon(self) -> None:
        """The client has gone; its session ends with the connection."""
        waiting = self._waiting
        self._leave()
        if waiting is not None:
            waiting.abandon()
        self._pending.done = True

    # The response

    def _answer(self, place: Place) -> PartitionData:
        found = self._answers.get(place)
        if found is None:
            found = self._answers[place] = PartitionData(partition_index=place[1])
        return found

    def _name_leader(self, place: Place, answer: PartitionData) -> None:
        leader = leader_of(self._ctx, place, LeaderIdAndEpoch)
        if leader is not None:
            answer.current_leader = leader

    def _complete(self) -> None:
        if not (self._acknowledged and self._fetched) or self._pending.done:
            return
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        leaders = []
        for (topic_id, _), answer in self._answers.items():
            topics.setdefault(topic_id, ShareFetchableTopicResponse(topic_id=topic_id)).partitions.append(
                answer
            )
            if ErrorCode.NOT_LEADER_OR_FOLLOWER in (answer.error_code, answer.acknowledge_error_code):
                leaders.append(answer.current_leader.leader_id)
        self._pending.complete(
            ShareFetchResponse(
                acquisition_lock_timeout_ms=services(self._ctx)
                .partitions.settings_of(self._session.group_id)
                .lock_ms,
                responses=list(topics.values()),
                node_endpoints=endpoints(self._ctx, leaders, NodeEndpoint),
            )
        )
