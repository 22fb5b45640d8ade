"""Broken connections, dead and silent brokers, cancelled sends: no record is lost or duplicated."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.client.base.conftest import client_tasks
from tests.client.producer.conftest import NewProducer
from tests.client.producer.reading import read_partition, read_topic
from tests.support.processes import BrokerProcess
from tests.support.proxy import Proxy
from tests.support.topics import create_topic
from tests.support.wire import Wire

from ottla_client.errors import (
    BootstrapError,
    BufferFullError,
    ClosedError,
    DeliveryTimeoutError,
    RequestTimeoutError,
    UnknownTopicError,
)
from ottla_client.producer import BatchDeliveryError, Producer
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest

OwnBroker = Callable[..., BrokerProcess]
NewTopic = Callable[..., str]


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as made:
        yield made


@pytest.fixture
def behind(proxy: Proxy, own_broker: OwnBroker) -> BrokerProcess:
    """A broker that is reached through the proxy."""
    broker = own_broker(settings={"advertised.listeners": f"PLAINTEXT://{proxy.address}"})
    proxy.target = broker.port
    create_topic(broker, "t", 2)
    return broker


def numbers(broker: BrokerProcess, partition: int) -> list[int]:
    return [int(record.value or b"-1") for record in read_partition(broker.port, "t", partition)]


@pytest.mark.parametrize("seed", range(4))
async def test_connections_cut_at_random(
    behind: BrokerProcess, proxy: Proxy, new_producer: NewProducer, seed: int
) -> None:
    rng = random.Random(seed)
    # Some connections break on the way to the broker, some with the answer on its way back; each lasts long
    # enough for a few batches now and then.
    proxy.limits = lambda: rng.choice(
        [(rng.randrange(5_000, 30_000), None), (None, rng.randrange(800, 3_000))]
    )
    count = 4000
    async with new_producer(proxy.address, batch_size=3_000, linger_ms=1) as producer:
        deliveries = []
        for number in range(count):
            deliveries.append(await producer.send("t", b"%d" % number, partition=number % 2))
            if number % 200 == 0:
                await asyncio.sleep(0.002)
        found = await asyncio.gather(*deliveries)
        proxy.limits = lambda: (None, None)
    assert proxy.cuts > 0
    for partition in range(2):
        assert numbers(behind, partition) == list(range(partition, count, 2))
    for number, metadata in enumerate(found):
        assert metadata.offset in (-1, number // 2)


async def test_broker_killed_in_the_middle(own_broker: OwnBroker, new_producer: NewProducer) -> None:
    broker = own_broker()
    create_topic(broker, "t", 2)
    count = 6000
    async with new_producer(broker.bootstrap, batch_size=2_000, linger_ms=1) as producer:

        async def produce() -> list[Any]:
            deliveries = []
            for number in range(count):
                deliveries.append(await producer.send("t", b"%d" % number, partition=number % 2))
                if number % 100 == 0:
                    await asyncio.sleep(0.005)
            return await asyncio.gather(*deliveries)

        producing = asyncio.create_task(produce())
        for _ in range(2):
            await asyncio.sleep(0.1)
            broker.kill()
            await asyncio.sleep(0.05)
            await asyncio.to_thread(broker.start)
        await producing
    for partition in range(2):
        assert numbers(broker, partition) == list(range(partition, count, 2))


async def test_no_answer_in_time(behind: BrokerProcess, proxy: Proxy, new_producer: NewProducer) -> None:
    producer = new_producer(
        proxy.address, delivery_timeout_ms=2_500, request_timeout_ms=2_000, linger_ms=0, max_block_ms=30_000
    )
    await producer.start()
    await producer.send_and_wait("t", b"0", partition=0)
    proxy.hold()
    delivery = await producer.send("t", b"1", partition=0)
    batch = await producer.send_batch("t", [b"2", b"3"], partition=1)
    with pytest.raises(DeliveryTimeoutError, match=r"not acknowledged within 2.5 s.*may have them"):
        await delivery
    with pytest.raises(BatchDeliveryError) as caught:
        await batch
    assert isinstance(caught.value.__cause__, DeliveryTimeoutError)
    proxy.release()
    # The failed batch only leaves a gap in the numbers: the next ones are delivered once, in order.
    for number in range(4, 10):
        await producer.send_and_wait("t", b"%d" % number, partition=0)
    await producer.close()
    written = numbers(behind, 0)
    assert written in ([0, *range(4, 10)], [0, 1, *range(4, 10)])


async def test_full_buffer(behind: BrokerProcess, proxy: Proxy, new_producer: NewProducer) -> None:
    producer = new_producer(proxy.address, buffer_memory=20_000, max_block_ms=2_000)
    await producer.start()
    await producer.send_and_wait("t", b"first", partition=0)
    proxy.hold()

    async def too_many() -> None:
        for _ in range(100):
            await producer.send("t", bytes(1000))

    with pytest.raises(BufferFullError, match="buffer_memory"):
        await too_many()
    # If half of a send_batch is buffered, its delivery has the error of the other half.
    proxy.release()
    await producer.flush(60)
    proxy.hold()
    delivery = await producer.send_batch("t", [b"%04d" % number * 250 for number in range(40)], partition=1)
    proxy.release()
    with pytest.raises(BatchDeliveryError) as caught:
        await delivery
    ((failed, error),) = caught.value.failed
    assert isinstance(error, BufferFullError)
    accepted = [index for each in caught.value.delivered for index in each.indices]
    assert accepted + list(failed) == list(range(40))
    await producer.close()
    assert producer._accumulator.memory.free == 20_000
    assert len(read_partition(behind.port, "t", 1)) >= len(accepted)


async def test_close_says_what_it_could_not_send(
    behind: BrokerProcess, proxy: Proxy, new_producer: NewProducer
) -> None:
    producer = new_producer(proxy.address)
    await producer.start()
    await producer.send_and_wait("t", b"0")
    proxy.hold()
    deliveries = [await producer.send("t", b"%d" % number) for number in range(7)]
    with pytest.raises(RequestTimeoutError, match="closed with 7 records"):
        await producer.close(0.2)
    for delivery in deliveries:
        with pytest.raises(ClosedError):
            await delivery
    await producer.close()
    assert not client_tasks()
    proxy.release()


async def test_no_broker(new_producer: NewProducer) -> None:
    producer = new_producer("127.0.0.1:1", max_block_ms=200)
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
        await producer.start()


async def test_broker_gone_for_longer_than_a_delivery_may_take(
    own_broker: OwnBroker, new_producer: NewProducer
) -> None:
    broker = own_broker()
    create_topic(broker, "t")
    producer = new_producer(
        broker.bootstrap, delivery_timeout_ms=300, request_timeout_ms=200, linger_ms=0, max_block_ms=5_000
    )

    async def deliver(value: bytes) -> None:
        """A broker that has just started may take longer than a delivery may."""
        async with asyncio.timeout(60):
            while True:
                with suppress(DeliveryTimeoutError):
                    await producer.send_and_wait("t", value)
                    return

    await producer.start()
    await deliver(b"0")
    broker.kill()
    with pytest.raises(DeliveryTimeoutError):
        await producer.send_and_wait("t", b"1")
    await asyncio.to_thread(broker.start)
    await deliver(b"2")
    await producer.close()
    assert numbers(broker, 0)[0] == 0
    assert numbers(broker, 0)[-1] == 2


@pytest.mark.parametrize("auto_create", [True, False])
async def test_topic_deleted_while_sending(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, auto_create: bool
) -> None:
    topic = new_topic()
    producer = new_producer(
        broker.bootstrap,
        allow_auto_create_topics=auto_create,
        delivery_timeout_ms=30_000 if auto_create else 2_000,
        request_timeout_ms=1_500,
        linger_ms=0,
    )
    await producer.start()
    for number in range(3):
        await producer.send_and_wait(topic, b"%d" % number)
    with Wire(broker.port) as wire:
        answer = wire.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 4)
        assert answer.responses[0].error_code == 0
    if auto_create:
        await producer.send_and_wait(topic, b"3")
        assert [record.value for record in read_topic(broker.port, topic)] == [b"3"]
    else:

        async def send_on() -> None:
            for _ in range(20):  # Kafka's answer may come before the topic's leader knows of the deletion
                await producer.send_and_wait(topic, b"3")
                await asyncio.sleep(0.05)

        with pytest.raises(UnknownTopicError, match="did not exist"):
            await send_on()
    await producer.close()


async def test_a_failure_that_is_never_retrieved_is_logged(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(cleanup_policy="compact")
    async with new_producer(broker.bootstrap, linger_ms=50) as producer:
        with caplog.at_level(logging.ERROR, logger="ottla_client.producer"):
            asked = await producer.send(topic, b"no key")
            for _ in range(2):
                await producer.send(topic, b"no key")
            await producer.flush()
            assert "INVALID_RECORD" in str(asked.exception())
            assert not caplog.records
            del asked
            gc.collect()
    assert [record.message for record in caplog.records if "2 records" in record.message]


async def test_the_loop_has_its_turn_while_much_is_sent(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with new_producer(broker.bootstrap, batch_size=10_000) as producer:
        await producer.send(topic, b"v")
        running = asyncio.create_task(other())
        for _ in range(1000):
            await producer.send(topic, bytes(1000))
        running.cancel()
    assert turns > 50


class CancelAt:
    """Awaits ``work``, and has the task cancelled as it waits for the ``at``-th time."""

    def __init__(self, work: Awaitable[Any], at: int) -> None:
        self.work = work
        self.at = at
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.work.__await__()
        task = asyncio.current_task()
        assert task is not None
        sent: Any = None
        failed: BaseException | None = None
        while True:
            try:
                yielded = steps.send(sent) if failed is None else steps.throw(failed)  # type: ignore[attr-defined]
            except StopIteration as stop:
                return stop.value
            self.waits += 1
            if self.waits == self.at:
                asyncio.get_running_loop().call_soon(task.cancel)
            failed = None
            try:
                sent = yield yielded
            except BaseException as error:
                failed = error


async def test_cancelled_at_every_await(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    """A send that is cancelled has not buffered its record; all others are written once; nothing is left over."""
    topic = new_topic(2)
    buffered: list[bytes] = []
    uncertain: list[bytes] = []

    async def scenario(producer: Producer, round: int) -> None:
        await producer.start()
        try:
            for number in range(12):
                value = b"%d:%d" % (round, number) + bytes(400)
                await producer.send(topic, value, b"k" if number % 3 else None)
                buffered.append(value)
            delivery = await producer.send(topic, b"%d:last" % round)
            buffered.append(b"%d:last" % round)
            await delivery
            many = [b"%d:b%d" % (round, number) + bytes(300) for number in range(20)]
            uncertain.extend(many)
            await producer.send_batch(topic, many)
            await producer.flush()
        finally:
            await producer.close()

    finished = False
    for at in range(1, 400):
        producer = Producer(
            broker.bootstrap, batch_size=1_000, buffer_memory=2_500, linger_ms=0, retry_backoff_ms=5
        )
        step = CancelAt(scenario(producer, at), at)
        before = len(buffered)

        async def run(step: CancelAt = step) -> None:
            await step

        task = asyncio.create_task(run())
        await asyncio.wait([task])
        if not task.cancelled():
            await task
            finished = True
        await producer.close()
        assert not client_tasks(), at
        if task.cancelled() and before == len(buffered):
            continue
        if finished:
            break
    assert finished
    written = [record.value or b"" for record in read_topic(broker.port, topic)]
    assert len(written) == len(set(written)), "none twice"
    assert set(written) <= {*buffered, *uncertain}, "none that a cancelled send has left"
    assert {value for value in buffered if value.startswith(b"%d:" % at)} <= set(written)
