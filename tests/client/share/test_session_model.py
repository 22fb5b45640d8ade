"""A share consumer and a broker, with faults in between: every record is done with, as the application said."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping
from time import monotonic
from typing import Any

import pytest
from tests.client.share.fake_shares import FakeCluster, FakeMember, FakeShareBroker, SharePartition
from tests.support.depth import examples

from ottla_client import AcknowledgeType, ShareConsumer, TopicPartition
from ottla_client.errors import ClientError
from ottla_client.share_consumer import engine, node_session
from ottla_client.share_consumer.engine import ShareEngine
from ottla_client.share_consumer.settings import ShareConsumerSettings
from ottla_protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

COUNT = 60
KINDS = [AcknowledgeType.ACCEPT] * 6 + [AcknowledgeType.RELEASE] * 2 + [AcknowledgeType.REJECT]


class Application:
    """Takes records, and does with them what ``chance`` says."""

    def __init__(self, chance: random.Random, broker: FakeShareBroker, mode: Any) -> None:
        self.chance = chance
        self.explicit = mode == "explicit"
        self.said: defaultdict[int, set[AcknowledgeType]] = defaultdict(set)
        """What it has said of each offset, each time that it got it."""
        self.errors: list[ClientError] = []
        options: dict[str, Any] = {"group_id": "g", "share_acknowledgement_mode": mode, "max_poll_records": 7}
        self.consumer = ShareConsumer(**options)
        engine = ShareEngine(ShareConsumerSettings(**options), FakeCluster(broker))  # type: ignore[arg-type]
        engine._member = FakeMember()  # type: ignore[assignment]
        engine.started = True
        self.consumer._engine = engine
        self.consumer.set_acknowledgement_commit_callback(self._settled)

    async def _settled(
        self, offsets: Mapping[TopicPartition, frozenset[int]], error: ClientError | None
    ) -> None:
        assert all(offset in self.said for its in offsets.values() for offset in its)
        if error is not None:
            self.errors.append(error)

    async def turn(self) -> None:
        """One poll, and what is done with its records."""
        count = self.chance.choice([1, 3, 7])
        records = await self.consumer.poll(50, count)
        assert len(records) <= count
        for record in records:
            assert record.value == b"%d" % record.offset
            kind = self.chance.choice(KINDS) if self.explicit else AcknowledgeType.ACCEPT
            if self.explicit:
                if self.chance.random() < 0.2:
                    self.consumer.acknowledge(record, self.chance.choice(KINDS))
                self.consumer.acknowledge(record, kind)
            self.said[record.offset].add(kind)
        if self.chance.random() < 0.2:
            self.consumer.commit_async()
        elif self.chance.random() < 0.2:
            await self.consumer.commit_sync()


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@pytest.mark.parametrize("faults", [True, False], ids=["faults", "no faults"])
async def test_every_record_is_done_with_as_the_application_said(mode: str, faults: bool) -> None:
    for seed in range(examples(10) if faults else 1):
        chance = random.Random(f"{mode} {seed}")
        broker = FakeShareBroker(SharePartition(COUNT), chance if faults else None)
        application = Application(chance, broker, mode)
        async with asyncio.timeout(60):
            while not broker.partition.is_done:
                assert not broker.defects, seed
                if broker.requests > 300:
                    broker.chance = None
                await application.turn()
            broker.chance = None
            await application.consumer.close()
        assert not broker.defects, seed
        assert broker.partition.is_done
        assert not application.consumer._engine.held.unacknowledged
        for offset, kind in broker.partition.applied:
            assert kind in application.said[offset], (seed, offset)
        assert faults or not application.errors


async def test_closing_releases_what_was_not_acknowledged() -> None:
    broker = FakeShareBroker(SharePartition(10), None)
    application = Application(random.Random(1), broker, "explicit")
    records = await application.consumer.poll(None)
    application.said[records[0].offset].add(AcknowledgeType.REJECT)
    application.consumer.acknowledge(records[0], AcknowledgeType.REJECT)
    await application.consumer.close()
    assert list(broker.partition.states.values()) == ["rejected"] + ["available"] * 9
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("ottla-share")] == []


async def test_fetches_wait_while_the_broker_throttles_and_acknowledgements_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = FakeShareBroker(SharePartition(20), None)
    application = Application(random.Random(1), broker, "explicit")
    loop = asyncio.get_running_loop()
    fetches: list[float] = []
    usual = broker._fetch

    def throttling(request: ShareFetchRequest) -> ShareFetchResponse:
        fetches.append(loop.time())
        answer = usual(request)
        answer.throttle_time_ms = 400 if len(fetches) == 1 else 0
        return answer

    monkeypatch.setattr(broker, "_fetch", throttling)
    for record in await application.consumer.poll(None):
        application.said[record.offset].add(AcknowledgeType.ACCEPT)
        application.consumer.acknowledge(record, AcknowledgeType.ACCEPT)
    await application.consumer.commit_sync()
    assert len(broker.partition.applied) == 5
    assert await application.consumer.poll(None)
    await application.consumer.close()
    assert fetches[1] - fetches[0] >= 0.4


async def test_a_throttle_that_ends_while_the_session_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had not ended when the session asked whether to fetch, and had when it computed how long to wait.

    So it waited until the next poll looked.
    """
    monkeypatch.setattr(engine, "TICK", 600.0)
    broker = FakeShareBroker(SharePartition(5), None)
    application = Application(random.Random(1), broker, "explicit")
    usual = broker._fetch

    def throttling(request: ShareFetchRequest) -> ShareFetchResponse:
        monkeypatch.setattr(broker, "_fetch", usual)
        end = monotonic() + 60
        # When the answer comes, at the first look, and from then on.
        times = iter([end - 60, end - 1e-6])
        monkeypatch.setattr(node_session, "monotonic", lambda: next(times, end + 1))
        return ShareFetchResponse(throttle_time_ms=60_000)

    monkeypatch.setattr(broker, "_fetch", throttling)
    async with asyncio.timeout(60):
        assert len(await application.consumer.poll(None)) == 5
    await application.consumer.close()
