"""What a group's coordinator on another broker says of its members."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla_broker.cluster.group_holders import GroupHolders
from ottla_broker.network.peer import PeerError, Peers
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import consumer_group_describe as consumer
from ottla_protocol.messages import describe_groups as classic
from ottla_protocol.messages import share_group_describe as share


class Peer:
    """A broker with a group, as ``Peers`` and as its connection."""

    def __init__(
        self,
        error: ErrorCode = ErrorCode.NONE,
        classic: int = 0,
        consumer: int | None = 0,
        share: int = 0,
    ) -> None:
        """``consumer`` None: the broker serves classic groups alone."""
        self.asked: list[int] = []
        self._error = error
        self._classic = classic
        self._consumer = consumer
        self._share = share

    async def connection(self, broker_id: int, *_: Any) -> Peer:
        self.asked.append(broker_id)
        if broker_id == 9:
            raise PeerError("broker 9 can't be reached")
        return self

    def version_of(self, api_key: int) -> int:
        if self._consumer is None:
            raise PeerError("not served")
        return 0

    async def submit(self, request: Any, *, timeout: float) -> Any:
        if isinstance(request, classic.DescribeGroupsRequest):
            members = [classic.DescribedGroupMember()] * self._classic
            group = classic.DescribedGroup(error_code=int(self._error), group_id="g", members=members)
            return classic.DescribeGroupsResponse(groups=[group])
        if isinstance(request, share.ShareGroupDescribeRequest):
            described = share.DescribedGroup(group_id="g", members=[share.Member()] * self._share)
            return share.ShareGroupDescribeResponse(groups=[described])
        return consumer.ConsumerGroupDescribeResponse(
            groups=[
                consumer.DescribedGroup(group_id="g", members=[consumer.Member()] * (self._consumer or 0))
            ]
        )


async def ask(peer: Peer, coordinator: int | None = 2) -> str | None:
    return await GroupHolders(1, cast(Peers, peer), lambda _: coordinator)("g")


async def test_members_of_every_protocol_are_found() -> None:
    assert await ask(Peer(classic=3)) == (
        "3 members of the classic protocol, which coordinate through the brokers"
    )
    assert await ask(Peer(consumer=2)) == (
        "2 members of the consumer protocol, which coordinate through the brokers"
    )
    assert await ask(Peer(share=1)) == (
        "1 members of the share protocol, which coordinate through the brokers"
    )
    assert await ask(Peer()) is None
    assert await ask(Peer(consumer=None)) is None


@pytest.mark.parametrize("coordinator", [None, -1, 1])
async def test_no_other_broker_is_asked(coordinator: int | None) -> None:
    peer = Peer(classic=1)
    assert await ask(peer, coordinator) is None
    assert not peer.asked


async def test_a_coordinator_that_does_not_say_holds_no_one_up() -> None:
    assert await ask(Peer(classic=1), 9) is None
    assert await ask(Peer(ErrorCode.NOT_COORDINATOR, classic=1)) is None
