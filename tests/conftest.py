"""Fixtures of the tests that need a broker process.

``pytest tests/clients --kafka`` runs them against Apache Kafka 3.9.1, ``--kafka=4`` against Kafka 4, where Java and
Maven are at hand: what these tests say of a broker has to hold for Kafka as well. A test of what only Ottla does bears
the mark ``ottla_only``, one of what Kafka 4 does otherwise ``not_kafka_4``, and one of what Kafka 3.9 lacks
``not_kafka_3``.
"""

from __future__ import annotations

import gc
import itertools
import re
import signal
from collections.abc import Callable, Generator, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests.support.depth import examples

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess
    from tests.support.scheduling import Share
    from tests.support.zookeeper import ZooKeeperProcess

# No test asserts a time, not even an example of a property.
settings.register_profile("suite", deadline=None, max_examples=examples(50))
settings.load_profile("suite")

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore Ctrl-C, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
_HANDLERS = {number: signal.getsignal(number) for number in _STOP_SIGNALS}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """A command that ran in this process must not answer later tests' Ctrl-C, which would wait for it."""
    try:
        return (yield)
    finally:
        for number, handler in _HANDLERS.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


# Waits that make tests slow, made short; nothing else differs from the defaults.
QUICK: dict[str, object] = {
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.share.heartbeat.interval.ms": 300,
    "group.share.min.heartbeat.interval.ms": 100,
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 300,
    "log.retention.check.interval.ms": 300,
    "log.segment.delete.delay.ms": 500,
}

# For the tests of the plugin.
pytest_plugins = ["pytester"]

# A test without a fixture that depends on this one has nothing to hold against Kafka.
_BROKER = "_broker_class"

_SPARK = re.compile(r"\bspark: ")
"""A parameter of a test that uses Spark's session."""
# In these lists the longest are first. CONTRIBUTING.md says what the longest prove.
_LONGEST = (
    "tests/commands/test_make.py",
    "tests/pipeline/faults/",
    "tests/pipeline/source/test_cluster.py",
    "tests/cluster/test_cluster.py",
    "tests/clients/test_transactions.py",
    "tests/faults/",
    "tests/pipeline/commands/test_ended_jobs.py",
    "tests/cluster/test_cluster_command.py",
    "tests/clients/test_groups.py",
    "tests/cluster/test_transactions.py",
    "tests/store/test_zookeeper.py",
    "tests/pipeline/source/test_found.py",
    "tests/cluster/test_lease_monitor.py",
    "tests/docs/test_security.py",
    "tests/crash/",
    "tests/pipeline/demo/",
    "tests/cluster/test_start.py",
    "tests/cluster/test_tls.py",
    "tests/pipeline/",
)
_LONG = (
    "tests/client/group/test_mixed.py",
    "tests/controller/cluster/test_turmoil.py",
    "tests/testing/test_embedded.py",
    "tests/docs/test_session.py",
    "tests/store/test_zookeeper_access.py",
    "tests/clients/test_topics.py",
    "tests/client/producer/test_faults.py",
    "tests/security/test_sasl_broker.py",
    "tests/testing/",
    "tests/clients/",
    "tests/client/group/test_groups.py",
    "tests/cli/consume/test_consume.py",
    "tests/cli/produce/test_produce.py",
    "tests/cli/groups/test_groups.py",
    "tests/cli/test_topics.py",
    "tests/log_cleaner/test_crash.py",
    "tests/commands/",
    "tests/cluster/",
    "tests/server/",
    "tests/client/consumer/test_groups.py",
    "tests/security/",
    "tests/controller/cluster/",
    "tests/docs/test_retention.py",
    "tests/docs/test_testing.py",
    "tests/docs/test_acls.py",
    "tests/docs/test_client.py",
)
# In `make interop` all processes run all tests.
_INTEROP = (
    "tests/interop/test_cluster_tools.py",
    "tests/interop/test_mixed_cluster.py",
    "tests/interop/test_java_tools.py",
    "tests/interop/test_exactly_once.py",
    "tests/interop/test_share_groups.py",
    "tests/interop/test_spark_connector.py",
    "tests/interop/test_moving_folders.py",
    "tests/interop/test_takeover.py",
    "tests/interop/test_mixed_transactions.py",
    "tests/interop/test_compaction.py",
    "tests/interop/test_security.py",
    "tests/interop/test_mixed_security.py",
    "tests/interop/test_old_consumers.py",
    "tests/interop/test_dump_log.py",
    "tests/interop/test_consumer_protocol.py",
    "tests/interop/test_old_java_clients.py",
    "tests/interop/test_secure_cluster.py",
    "tests/interop/test_client_groups.py",
)
# With Kafka, those are long that start brokers, and wait for one that was killed.
_ON_KAFKA = (
    "tests/client/group/test_groups.py",
    "tests/client/producer/test_faults.py",
    "tests/client/producer/test_transactions.py",
    "tests/client/base/",
    "tests/client/consumer/test_faults.py",
    "tests/client/group/test_mixed.py",
    "tests/pipeline/",
    "tests/client/admin/",
    "tests/cli/",
    "tests/docs/",
    "tests/client/sync/",
)
_RANKED = (*_LONGEST, *_LONG)
_ORDER = {"test": (*_RANKED, *_INTEROP), "on Kafka": _ON_KAFKA}

_ROOT = Path(__file__).parents[1]
_SHARE: pytest.StashKey[Share] = pytest.StashKey()
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kafka",
        nargs="?",
        const="3",
        choices=["3", "4"],
        help="hold the tests of clients against Apache Kafka 3.9.1 (--kafka) or 4.x (--kafka=4)",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``-n``: one process runs the tests of a file, and one all files with tests that use Spark's session."""
    if config.getoption("dist") != "load":
        return None
    from tests.support.scheduling import Scheduling

    def unit_of(test: str) -> str:
        file = test.partition("::")[0]
        return "spark" if _uses_spark(str(config.rootpath / file)) else file

    return Scheduling(config, log, unit_of)


def pytest_configure(config: pytest.Config) -> None:
    """With ``-n``, each worker begins to collect at another place, so that it finds compiled what others began with.

    Compiling the tests' modules is most of that work.
    """
    gc.disable()  # until they are collected: nothing of that is garbage
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    from tests.support.scheduling import Length, Share, report_less

    report_less(config)
    if config.args == config.getini("testpaths"):
        tests = config.rootpath / "tests"

        def length_of(file: str) -> Length:
            rank = _rank_of(file)
            if rank < len(_LONGEST):
                return Length.LONGEST
            return Length.LONG if rank < len(_RANKED) else Length.QUICK

        share = config.stash[_SHARE] = Share(tests, worker, length_of)
        share.give_way()
        folders = (each for each in tests.iterdir() if each.is_dir())
        # What is deselected would be imported for nothing.
        without = {"interop"} if config.getoption("markexpr") == "not interop" else set()
        areas = sorted(
            str(each) for each in folders if not each.name.startswith(("_", ".")) and each.name not in without
        )
        begin = len(areas) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args = areas[begin:] + areas[:begin]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    share = config.stash.get(_SHARE, None)
    return True if share is not None and share.leaves_out(collection_path) else None


def pytest_collection_finish() -> None:
    """The tests stay until the end, so the garbage collector can skip them."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        # The longest first, so that no worker ends long after the others.
        share = config.stash.get(_SHARE, None)
        order = "on Kafka" if config.getoption("--kafka") else "test"

        def place(item: pytest.Item) -> tuple[int, str]:
            file = str(item.path)
            rank = _rank_of(file, order)
            return (rank if share is None else share.rank(item.path, rank)), file

        items.sort(key=place)
    kafka = config.getoption("--kafka")
    if kafka is None:
        return
    with_broker = [_BROKER in getattr(item, "fixturenames", ()) for item in items]
    config.hook.pytest_deselected(
        items=[item for item, has_broker in zip(items, with_broker, strict=True) if not has_broker]
    )
    items[:] = [item for item, has_broker in zip(items, with_broker, strict=True) if has_broker]
    only_ottla = {"ottla_only": "only Ottla does this"}
    reasons = {
        "3": {**only_ottla, "not_kafka_3": "Kafka 3.9 lacks this"},
        "4": {**only_ottla, "not_kafka_4": "Kafka 4 does this otherwise"},
    }
    for mark, reason in reasons[kafka].items():
        for item in items:
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


@cache
def _rank_of(file: str, order: str = "test") -> int:
    if _uses_spark(file):
        return -1
    ranked = _ORDER[order]
    return next((n for n, at in enumerate(ranked) if file.startswith(f"{_ROOT}/{at}")), len(ranked))


@cache
def _uses_spark(file: str) -> bool:
    return "pipeline" in file and _SPARK.search(Path(file).read_text(encoding="utf-8")) is not None


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pytest's own, which reads the names of all folders before it makes another: thousands, for each test."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{name}-{next(_numbers)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session")
def is_kafka(request: pytest.FixtureRequest) -> bool:
    """Whether the broker is Apache Kafka."""
    return request.config.getoption("--kafka") is not None


@pytest.fixture(scope="session")
def _broker_class(request: pytest.FixtureRequest) -> Callable[..., BrokerProcess]:
    kafka = request.config.getoption("--kafka")
    if kafka is not None:
        from harness import maven
        from harness.java import Unavailable
        from tests.support.kafka import KafkaProcess

        version = {"3": maven.KAFKA_VERSION, "4": maven.KAFKA_4_VERSION}[kafka]
        try:
            maven.kafka_jars(version)
        except Unavailable as lack:
            pytest.skip(f"Kafka {version} is not to be had: {lack}")
        return partial(KafkaProcess, version=version)  # type: ignore[return-value]
    from tests.support.processes import BrokerProcess

    return BrokerProcess


@pytest.fixture(scope="session")
def _shared_broker(
    _broker_class: Callable[..., BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = _broker_class(tmp_path_factory.mktemp("shared") / "data", QUICK)
    broker.forked = False
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """The ZooKeeper that most tests share; each has a chroot of its own."""
    from tests.support.zookeeper import ZooKeeperProcess

    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def broker(_shared_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """The broker that most tests share. A test that makes it log a failed request has found a defect."""
    yield _shared_broker
    assert not _shared_broker.complaints()


@pytest.fixture
def transactions(_shared_broker: BrokerProcess) -> None:
    """Skips the test if the broker has no transactions."""
    from tests.support.transactions import has_transactions

    if not has_transactions(_shared_broker):
        pytest.skip("the broker has no transactions")


@pytest.fixture
def own_broker(
    _broker_class: Callable[..., BrokerProcess], tmp_path: Path
) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes and starts brokers of the test's own; ``settings`` go on top of the quick ones."""
    made: list[BrokerProcess] = []

    def make(**options: Any) -> BrokerProcess:
        settings = {**QUICK, **options.pop("settings", {})}
        folder = options.pop("folder", tmp_path / f"broker-{len(made)}")
        broker = _broker_class(folder, settings, **options)
        made.append(broker)
        return broker.start()

    yield make
    complaints = []
    for broker in made:
        broker.kill()
        complaints += broker.complaints()
    assert not complaints


@pytest.fixture
def new_topic(broker: BrokerProcess) -> Callable[..., str]:
    """Makes a topic with a name of its own on the shared broker."""

    def make(partitions: int = 1, prefix: str = "t", **configs: object) -> str:
        from tests.support.topics import create_topic

        name = unique(prefix)
        create_topic(broker, name, partitions, **configs)
        return name

    return make


@pytest.fixture
def new_name() -> Callable[..., str]:
    """Names that no other test uses: ``new_name("group")``."""
    return unique


def unique(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"
