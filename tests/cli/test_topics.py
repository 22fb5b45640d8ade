"""`ottla topics`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from tests.cli.ottla_command import OTTLA, Ottla
from tests.client.admin.records import put
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

from ottla_client.sync import Producer

Name = Callable[..., str]
Topic = Callable[..., str]


@pytest.fixture
def ottla(broker: BrokerProcess) -> Ottla:
    return Ottla(broker.bootstrap)


def until_there(ottla: Ottla, name: str, partitions: int = 1) -> None:
    """Kafka's brokers learn of a topic a moment after the controller has answered."""

    def there() -> bool:
        return any(t["topic"] == name and t["partitions"] == partitions for t in ottla.json("topics", "list"))

    wait_for(there, f"{name} with {partitions} partitions")


def until_gone(ottla: Ottla, name: str) -> None:
    """As :func:`until_there`, for a topic that was deleted."""
    wait_for(lambda: ottla.json("topics", "list", name) == [], f"{name} to be gone")


def test_a_topic_from_its_making_to_its_end(ottla: Ottla, new_name: Name) -> None:
    name = new_name("made")
    said = ottla("topics", "create", name, "--partitions", "3", "-c", "retention.ms=86400000")
    assert said == f"created topic {name}: 3 partitions, replication 1\n"
    until_there(ottla, name, 3)
    assert ottla.rows("topics", "list", name) == [[name, "3", "1"]]
    assert f"topic {name} already" in ottla.fails("topics", "create", name)
    again = ottla.json("topics", "create", name, "--if-not-exists")
    assert again == {"topic": name, "created": False, "partitions": 3, "replication_factor": 1}
    assert "5 partitions now, 3 before" in ottla("topics", "alter", name, "--partitions", "5")
    until_there(ottla, name, 5)
    assert "can't have fewer" in ottla.fails("topics", "alter", name, "--partitions", "2")
    assert "already has 5 partitions" in ottla.fails("topics", "alter", name, "--partitions", "5")
    assert "--yes" in ottla.fails("topics", "delete", name, code=2)
    assert ottla("topics", "delete", name, "--yes") == f"deleted topic {name}\n"
    until_gone(ottla, name)
    assert "unknown topic" in ottla.fails("topics", "delete", name, "--yes")
    assert ottla.json("topics", "delete", name, "--yes", "--if-exists") == {"deleted": []}
    said = ottla.run("topics", "delete", name, "--yes", "--if-exists").stderr
    assert said == f"topic {name} doesn't exist\nnothing was deleted\n"


def test_listing(ottla: Ottla, new_topic: Topic, new_name: Name) -> None:
    first, second = new_topic(2, prefix="some"), new_topic(prefix="some")
    ottla.run("groups", "describe", new_name("group"))  # has the offsets' topic made
    names = [topic["topic"] for topic in ottla.json("topics", "list")]
    assert {first, second} <= set(names)
    assert "__consumer_offsets" not in names
    assert ["__consumer_offsets", "yes"] in [
        [row[0], row[-1]] for row in ottla.rows("topics", "list", "--internal")
    ]
    assert first in (listed := ottla("topics", "list", first[:-1] + "*"))
    assert listed.startswith("TOPIC")
    nothing = ottla.run("topics", "list", "no-such-*")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "no topic matches" in nothing.stderr


def test_describing(ottla: Ottla, broker: BrokerProcess, new_topic: Topic) -> None:
    name = new_topic(2, retention_ms=-1)
    put(broker, name, 1, 1000, 2000, 3000)
    (topic,) = ottla.json("topics", "describe", name)
    assert topic["topic"] == name
    assert topic["configs"]["retention.ms"] == "-1"
    empty, filled = topic["partitions"]
    assert (empty["records"], filled["earliest"], filled["latest"], filled["records"]) == (0, 0, 3, 3)
    assert filled["leader"] in filled["replicas"]
    assert empty["size"] == 0 < filled["size"]
    piped = ottla("topics", "describe", name)
    assert piped.startswith(f"{name}: 2 partitions, replication 1, id ")
    assert "PARTITION  LEADER  REPLICAS" in piped
    assert "retention.ms" in piped
    code, shown = ottla.at_terminal("topics", "describe", name, name, width=80)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert "Earliest" in shown
    assert "retention.ms" in shown


def test_unknown_names_get_suggestions(ottla: Ottla, new_topic: Topic) -> None:
    name = new_topic(prefix="payments-of-all-sorts")
    wrong = name.replace("all", "al")
    for command in (
        ["describe", wrong],
        ["describe", name, wrong],
        ["alter", wrong, "--partitions", "9"],
        ["delete", wrong, "--yes"],
        ["truncate", wrong, "--all", "--yes"],
    ):
        said = ottla.fails("topics", *command)
        assert said.startswith(f"Error: unknown topic {wrong}; did you mean ")
        assert name in said
    near = ottla.fails("topics", "create", name + "-x", "-c", "retention.mss=1")
    assert "did you mean retention.ms" in near


def test_truncating(ottla: Ottla, broker: BrokerProcess, new_topic: Topic) -> None:
    name = new_topic(2, retention_ms=-1)
    put(broker, name, 0, *range(5))
    put(broker, name, 1, *range(9))
    assert "ends at offset 5" in ottla.fails("topics", "truncate", name, "--before", "7", "--yes")
    assert ottla.rows("topics", "truncate", name, "--before", "3", "--partitions", "1", "-y") == [
        ["1", "0", "3", "3"]
    ]
    assert ottla.json("topics", "truncate", name, "--all", "-y") == [
        {"partition": 0, "start_before": 0, "start_now": 5, "deleted": 5},
        {"partition": 1, "start_before": 3, "start_now": 9, "deleted": 6},
    ]
    assert [row[-1] for row in ottla.rows("topics", "truncate", name, "--all")] == ["0", "0"]
    assert "has 2 partitions, no 5" in ottla.fails("topics", "truncate", name, "--all", "--partitions", "5")
    for wrong in ([], ["--all", "--before", "3"], ["--all", "--partitions", "x"]):
        ottla.fails("topics", "truncate", name, *wrong, code=2)


def test_truncating_a_topic_that_is_only_compacted(
    ottla: Ottla, broker: BrokerProcess, new_topic: Topic
) -> None:
    name = new_topic(1, cleanup_policy="compact")
    with Producer(broker.bootstrap) as producer:
        producer.send_and_wait(name, b"v", b"k")
    assert "its cleanup.policy lacks delete" in ottla.fails("topics", "truncate", name, "--all", "--yes")


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_it_asks_at_a_terminal(ottla: Ottla, new_topic: Topic, answer: str, code: int) -> None:
    name = new_topic()
    ended, shown = ottla.at_terminal("topics", "delete", name, answer=answer)
    assert ended == code
    assert f"Delete {name} with all records?" in shown
    if code:
        assert ottla.json("topics", "list", name)
    else:
        until_gone(ottla, name)


def test_usage(ottla: Ottla, new_topic: Topic) -> None:
    name = new_topic()
    for wrong in (
        ["create", name, "-c", "nothing"],
        ["create", name, "--partitions", "0"],
        ["create"],
        ["list", "-X", "nonsense=1"],
        ["list", "-X", "retry_backoff_ms=soon"],
        ["list", "-X", "request_timeout_ms=-1"],
        ["describe", name, "--timeout", "0"],
    ):
        assert "Traceback" not in ottla.fails("topics", *wrong, code=2)
    for command in (
        ["topics", "describe"],
        ["topics", "delete"],
        ["configs", "describe"],
        ["topics", "create"],
    ):
        said = ottla.fails(*command, f"{name}:5,3", code=2)
        assert said.endswith(f"not a valid topic name; this command takes whole topics: {name}\n")
    said = ottla.fails("topics", "truncate", f"{name}:5,3", "--all", code=2)
    assert said.endswith(f"for a partition: {name} --partitions 5,3\n")
    assert "'' is not a list of" in ottla.fails(
        "topics", "truncate", name, "--all", "--partitions", "", code=2
    )
    assert "'' is not a valid topic name" in ottla.fails("topics", "describe", "", code=2)
    for command in ("list", "describe", "create", "alter", "delete", "truncate"):
        assert "ottla topics" in ottla("topics", command, "--help")


def test_a_closed_pipe_and_no_broker(ottla: Ottla) -> None:
    piped = subprocess.run(
        f"{OTTLA} topics list --json | true",
        shell=True,
        env=ottla.environment,
        capture_output=True,
        timeout=60,
        text=True,
        check=False,
    )
    assert (piped.returncode, piped.stderr) == (0, "")
    said = ottla.fails("topics", "list", "-b", "127.0.0.1:1", "--timeout", "0.3")
    assert said.count("\n") <= 2
    assert "127.0.0.1:1" in said


def test_several_topics_are_created_up_to_the_first_that_fails(ottla: Ottla, new_name: Name) -> None:
    first, second, third = (new_name("one") for _ in range(3))
    said = ottla("topics", "create", first, second, "--partitions", "2")
    assert said.splitlines() == [
        f"created topic {each}: 2 partitions, replication 1" for each in (first, second)
    ]
    assert f"topic {second} already exists" in ottla.fails("topics", "create", second, third)
    assert third not in ottla("topics", "list")


def test_values_with_units_and_configs_in_the_wrong_place_get_advice(ottla: Ottla, new_name: Name) -> None:
    name = new_name("units")
    advice = "retention.ms is a number of milliseconds: for 7d give 604800000\n"
    assert ottla.fails("topics", "create", name, "-c", "retention.ms=7d").endswith(advice)
    ottla("topics", "create", name)
    assert ottla.fails("configs", "alter", name, "--set", "retention.ms=7d").endswith(advice)
    assert "for 1MiB give 1048576" in ottla.fails("configs", "alter", name, "--set", "segment.bytes=1MiB")
    wrong = ottla.fails("configs", "alter", name, "--set", "cleanup.policy=x")
    assert wrong.startswith(f"Error: topic {name}: Invalid value x for configuration cleanup.policy")
    said = ottla.fails("topics", "alter", name, "-c", "retention.ms=1", code=2)
    assert "ottla configs alter TOPIC --set retention.ms=1" in said
