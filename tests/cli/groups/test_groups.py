"""`ottla groups`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from tests.cli.ottla_command import Ottla
from tests.client.admin.records import put
from tests.clients.members import ConfluentMember, shared_out
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_cli.shared.admin import unknown_group
from ottla_client import Admin, TopicPartition
from ottla_client.admin import GroupListing
from ottla_client.errors import UnknownTopicError
from ottla_client.sync import Admin as SyncAdmin
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

Name = Callable[..., str]
Topic = Callable[..., str]


@pytest.fixture
def ottla(broker: BrokerProcess) -> Ottla:
    return Ottla(broker.bootstrap)


@pytest.fixture
def filled(broker: BrokerProcess, new_topic: Topic) -> tuple[str, int]:
    """A topic with records from 5, 4, … 1 minutes ago in partition 0 and none in 1, and the current time."""
    name = new_topic(2)
    now = int(time.time() * 1000)
    for ago in range(5, 0, -1):
        put(broker, name, 0, now - ago * 60_000)
    return name, now


@pytest.fixture
def new_group(ottla: Ottla, new_name: Name, tmp_path: Path) -> Callable[[str], str]:
    """Makes groups without members, with offset 2 committed for a topic's partition 0."""

    def make(topic: str) -> str:
        name = new_name("group")
        reset(ottla, name, "--topic", f"{topic}:0", "--to-offset", "2", "--execute")
        return name

    return make


@pytest.fixture
def joined(broker: BrokerProcess) -> Iterator[Callable[..., ConfluentMember]]:
    members = []

    def make(group: str, topic: str, **options: object) -> ConfluentMember:
        member = ConfluentMember(broker.bootstrap, group, [topic], **options)
        members.append(member)
        shared_out([member], topic, 2)
        return member

    yield make
    for member in members:
        member.leave()


def reset(ottla: Ottla, *arguments: str) -> dict[int, tuple[int | None, int]]:
    """Old and new offsets by partition."""
    rows = ottla.json("groups", "reset-offsets", *arguments)
    return {row["partition"]: (row["old_offset"], row["new_offset"]) for row in rows}


@pytest.mark.parametrize("name", ["", " ", " g", "g "])
def test_a_group_whose_name_is_empty_or_has_blanks_around_it(
    name: str, ottla: Ottla, filled: tuple[str, int]
) -> None:
    """Old clients commit to the empty one."""
    topic, _ = filled
    reset(ottla, name, "--topic", f"{topic}:0", "--to-offset", "2", "--execute")
    try:
        assert reset(ottla, name, "--all-topics", "--to-earliest") == {0: (2, 0)}
        (group,) = ottla.json("groups", "list", name)
        assert (group["group"], group["state"], group["generation"]) == (name, "Empty", "simple")
        assert [f"'{name}'", "Empty"] in [row[:2] for row in ottla.rows("groups", "list")]
        described = ottla.json("groups", "describe", name)
        assert (described["group"], described["lag_records"]) == (name, 3)
        assert ottla("groups", "describe", name).startswith(f"Group        '{name}'\n")
        (lag,) = ottla.json("groups", "lag", name)
        assert (lag["group"], lag["lag_records"]) == (name, 3)
    finally:
        assert ottla("groups", "delete", name, "--yes") == f"deleted group '{name}'\n"
    assert ottla.fails("groups", "describe", name) == f"Error: unknown group '{name}'\n"


def test_names_that_are_odd_or_very_long_move_no_other_line(ottla: Ottla, filled: tuple[str, int]) -> None:
    odd, long = "a\x1b[31m\nb\u202e", "g" * 20_000
    for name in (odd, long):
        reset(ottla, name, "--topic", f"{filled[0]}:0", "--to-offset", "2", "--execute")
    try:
        lines = ottla("groups", "list").splitlines()
        assert sorted(map(len, lines))[-2] < 500
        assert any(line.startswith(r"a\x1b[31m\nb\u202e ") for line in lines)
        assert any(line.startswith(long) for line in lines)
        assert len(ottla("groups", "delete", long, "--yes")) < 300
    finally:
        ottla("groups", "delete", odd, "--yes")


def test_names_that_look_like_others(
    ottla: Ottla, filled: tuple[str, int], new_name: Callable[[str], str]
) -> None:
    name = new_name("group")
    for each in (f"{name} ", f"[{name}]"):
        reset(ottla, each, "--topic", f"{filled[0]}:0", "--to-offset", "2", "--execute")
    assert f"did you mean '{name} ' or [{name}]" in ottla.fails("groups", "describe", name)
    assert [each["group"] for each in ottla.json("groups", "list", f"[{name}]")] == [f"[{name}]"]
    assert [each["group"] for each in ottla.json("groups", "lag", f"[{name}]", "--once")] == [f"[{name}]"]


def test_listing(ottla: Ottla, filled: tuple[str, int], new_group: Callable[[str], str]) -> None:
    name = new_group(filled[0])
    (group,) = ottla.json("groups", "list", name)
    assert (group["state"], group["members"], group["type"]) == ("Empty", 0, "classic")
    assert group["generation"] == "simple"
    assert name in ottla("groups", "list", "--state", "Empty")
    assert name not in ottla("groups", "list", "--state", "Stable")
    assert ottla.run("groups", "list", "no-such-*").stderr == "no group matches no-such-*\n"
    none = ottla.run("groups", "list", "no-such-*", "--state", "Dead", "--state", "Stable").stderr
    assert none == "no group matches no-such-* in state Dead or Stable\n"


def test_lag(ottla: Ottla, filled: tuple[str, int], new_group: Callable[[str], str]) -> None:
    name = new_group(filled[0])
    group = ottla.json("groups", "describe", name)
    (partition,) = group["partitions"]
    assert (partition["committed"], partition["end"], partition["lag_records"]) == (2, 5, 3)
    assert 180 <= partition["lag_seconds"] < 240
    assert (group["lag_records"], group["lag_seconds"]) == (3, partition["lag_seconds"])
    piped = ottla("groups", "describe", name)
    assert piped.startswith(f"Group        {name}\nState        Empty\n")
    assert "Lag          3 records, 3m" in piped
    reset(ottla, name, "--topic", filled[0], "--to-latest", "--execute")
    caught_up = ottla.json("groups", "describe", name)
    assert (caught_up["lag_records"], caught_up["lag_seconds"]) == (0, 0.0)
    code, shown = ottla.at_terminal("groups", "describe", name, width=80)
    assert code == 0
    assert "Committed" in shown
    assert "0 records, 0s behind" in shown


def test_a_group_with_members(
    ottla: Ottla, filled: tuple[str, int], new_name: Name, joined: Callable[..., ConfluentMember]
) -> None:
    name, (topic, _) = new_name("group"), filled
    joined(name, topic, **{"client.id": "reader"}, instance_id="desk-1")
    group = ottla.json("groups", "describe", name)
    assert (group["state"], group["protocol"]) == ("Stable", "range")
    (member,) = group["members"]
    assert (member["client"], member["host"], member["instance_id"]) == ("reader", "127.0.0.1", "desk-1")
    assert member["assignment"] == [[topic, 0], [topic, 1]]
    for partition in group["partitions"]:
        assert partition["client"] == "reader"
        assert (partition["committed"], partition["lag_records"], partition["lag_seconds"]) == (
            None,
            None,
            None,
        )
    piped = ottla("groups", "describe", name)
    assert f"{topic}:0-1" in piped
    assert "desk-1" in piped
    code, shown = ottla.at_terminal("groups", "describe", name, width=80)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert ottla.json("groups", "list", name)[0]["members"] == 1
    said = ottla.fails("groups", "reset-offsets", name, "--topic", topic, "--to-latest", "--execute")
    assert "has 1 member: stop its consumers" in said
    dry = ottla.run("groups", "reset-offsets", name, "--topic", topic, "--to-latest")
    assert dry.exit_code == 0
    assert "must be stopped first" in dry.stderr
    assert "has 1 member: stop its consumers" in ottla.fails("groups", "delete", name, "--yes")
    assert "did you mean desk-1" in ottla.fails("groups", "remove-member", name, "desk-2", "-y")
    assert "desk-1" in ottla("groups", "remove-member", name, "desk-1", "-y")


def test_removing_all_members(
    ottla: Ottla, filled: tuple[str, int], new_name: Name, joined: Callable[..., ConfluentMember]
) -> None:
    name = new_name("group")
    joined(name, filled[0], instance_id="desk-1").leave()
    assert ottla.json("groups", "remove-member", name, "--all", "-y") == {
        "group": name,
        "removed": ["desk-1"],
    }
    assert ottla.json("groups", "remove-member", name, "--all", "-y") == {"group": name, "removed": []}
    assert "has no members" in ottla.run("groups", "remove-member", name, "--all", "-y").stderr


def test_resetting(ottla: Ottla, filled: tuple[str, int], new_group: Callable[[str], str]) -> None:
    topic, now = filled
    name = new_group(topic)

    def both(*where: str) -> dict[int, tuple[int | None, int]]:
        return reset(ottla, name, "--topic", topic, *where)

    def moment(ago: float) -> str:
        return datetime.fromtimestamp(now / 1000 - ago, UTC).isoformat()

    assert both("--to-earliest") == {0: (2, 0), 1: (None, 0)}
    assert both("--to-latest") == {0: (2, 5), 1: (None, 0)}
    assert both("--to-current") == {0: (2, 2), 1: (None, 0)}
    assert both("--to-offset", "3") == {0: (2, 3), 1: (None, 0)}
    assert both("--to-datetime", moment(150)) == {0: (2, 3), 1: (None, 0)}
    assert both("--to-datetime", moment(0)) == {0: (2, 5), 1: (None, 0)}
    assert both("--by-duration", "PT3M59S") == both("--by-duration", "3m59s") == {0: (2, 2), 1: (None, 0)}
    assert reset(ottla, name, "--all-topics", "--shift-by", "2") == {0: (2, 4)}
    assert reset(ottla, name, "--topic", f"{topic}:0", "--shift-by", "-1") == {0: (2, 1)}
    assert reset(ottla, name, "--all-topics", "--shift-by", "99") == {0: (2, 5)}
    assert "no committed offset to shift" in ottla.fails(
        "groups", "reset-offsets", name, "--topic", topic, "--shift-by", "1"
    )
    dry = ottla.run("groups", "reset-offsets", name, "--topic", topic, "--to-earliest")
    assert "--execute" in dry.stderr
    assert ottla.json("groups", "describe", name)["partitions"][0]["committed"] == 2
    both("--to-earliest", "--execute")
    assert [p["committed"] for p in ottla.json("groups", "describe", name)["partitions"]] == [0, 0]


def test_export_and_import(
    ottla: Ottla, filled: tuple[str, int], new_group: Callable[[str], str], tmp_path: Path
) -> None:
    topic, _ = filled
    name = new_group(topic)
    before = ottla("groups", "reset-offsets", name, "--all-topics", "--to-current", "--export")
    assert before == f"{topic},0,2\n"
    file = tmp_path / "before.csv"
    file.write_text(before)
    reset(ottla, name, "--topic", topic, "--to-latest", "--execute")
    assert reset(ottla, name, "--from-file", str(file), "--execute") == {0: (5, 2)}
    said = json.loads(
        ottla("groups", "reset-offsets", name, "--from-file", "-", "--json", stdin=f"{topic},0,1\n\n")
    )
    assert said[0]["new_offset"] == 1
    for broken in (f"{topic},0,1\n{topic},x,1\n", f"{topic},0,1\nnothing\n"):
        file.write_text(broken)
        assert "line 2" in ottla.fails("groups", "reset-offsets", name, "--from-file", str(file))
    file.write_text("\n")
    assert "no lines" in ottla.fails("groups", "reset-offsets", name, "--from-file", str(file))
    file.write_bytes(b"\xff\xfe\n")
    assert "line 1" in ottla.fails("groups", "reset-offsets", name, "--from-file", str(file))


def test_deleting(ottla: Ottla, filled: tuple[str, int], new_group: Callable[[str], str]) -> None:
    name = new_group(filled[0])
    ottla.fails("groups", "delete", name, code=2)
    assert ottla("groups", "delete", name, "-y") == f"deleted group {name}\n"
    assert ottla.json("groups", "list", name) == []


def test_unknown_names_get_suggestions(
    ottla: Ottla, filled: tuple[str, int], new_name: Name, new_group: Callable[[str], str]
) -> None:
    name = new_group(filled[0])
    wrong = name.replace("group", "grup")
    for command in (
        ["describe", wrong],
        ["delete", wrong, "-y"],
        ["remove-member", wrong, "--all", "-y"],
        ["reset-offsets", wrong, "--all-topics", "--to-earliest"],
    ):
        assert ottla.fails("groups", *command).startswith(f"Error: unknown group {wrong}; did you mean ")
    made = ottla.run("groups", "reset-offsets", wrong, "--topic", filled[0], "--to-earliest")
    assert made.exit_code == 0
    assert "these offsets create it" in made.stderr
    assert filled[0] in ottla.fails(
        "groups", "reset-offsets", name, "--topic", filled[0] + "x", "--to-earliest"
    )
    assert "has 2 partitions, no 7" in ottla.fails(
        "groups", "reset-offsets", name, "--topic", filled[0] + ":7", "--to-earliest"
    )


def test_usage(ottla: Ottla) -> None:
    where = ["--topic", "t"]
    for wrong in (
        where,
        ["--to-latest"],
        [*where, "--all-topics", "--to-latest"],
        [*where, "--to-latest", "--to-earliest"],
        [*where, "--to-latest", "--execute", "--export"],
        [*where, "--by-duration", "soon"],
        [*where, "--by-duration", "P"],
        [*where, "--to-datetime", "soon"],
        ["--topic", "t:x", "--to-latest"],
        ["--topic", ":1", "--to-latest"],
        ["--from-file", "/no/such/file"],
    ):
        ottla.fails("groups", "reset-offsets", "g", *wrong, code=2)
    ottla.fails("groups", "remove-member", "g", code=2)
    for command in ("list", "describe", "reset-offsets", "delete", "remove-member"):
        assert "ottla groups" in ottla("groups", command, "--help")


def test_generation_of_a_group_with_members(
    ottla: Ottla, filled: tuple[str, int], new_name: Name, joined: Callable[..., ConfluentMember]
) -> None:
    name = new_name("group")
    joined(name, filled[0])
    (group,) = ottla.json("groups", "list", name)
    assert (group["generation"], group["members"]) == ("classic", 1)


@pytest.mark.ottla_only
def test_offsets_migrate_to_zookeeper_and_back(
    broker: BrokerProcess,
    ottla: Ottla,
    filled: tuple[str, int],
    new_group: Callable[[str], str],
    joined: Callable[..., ConfluentMember],
) -> None:
    """The embedded store stands for ZooKeeper here."""
    topic = filled[0]
    name = new_group(topic)

    def migrate(to: str, *arguments: str) -> list[tuple[int, int | None, int]]:
        rows = ottla.json("groups", "migrate-offsets", name, "--to", to, *arguments)
        return [(row["partition"], row["old_offset"], row["new_offset"]) for row in rows]

    assert "has no offsets in ZooKeeper" in ottla.fails("groups", "migrate-offsets", name, "--to", "kafka")
    assert migrate("zookeeper") == [(0, None, 2)]
    assert "add --execute" in ottla.run("groups", "migrate-offsets", name, "--to", "zookeeper").stderr
    assert "has no offsets in ZooKeeper" in ottla.fails("groups", "migrate-offsets", name, "--to", "kafka")
    assert migrate("zookeeper", "--execute") == [(0, None, 2)]
    reset(ottla, name, "--topic", f"{topic}:0", "--to-offset", "4", "--execute")
    shown = ottla.run("groups", "migrate-offsets", name, "--to", "kafka")
    assert "1 partition of group" in shown.stderr
    assert "would go back" in shown.stderr
    assert migrate("zookeeper", "--execute") == [(0, 2, 4)]
    assert migrate("kafka", "--execute") == [(0, 4, 4)]
    joined(name, topic)
    assert "has 1 member" in ottla.fails("groups", "migrate-offsets", name, "--to", "kafka", "--execute")
    # A group that is nowhere else.
    with SyncAdmin(broker.bootstrap) as admin:
        admin.alter_zookeeper_offsets(f"{name}-old", {TopicPartition(topic, 0): 1})
    (found,) = ottla.json("groups", "lag", f"{name}-old", "--once")
    assert (found["lag_records"], found["partitions"][0]["committed"]) == (4, 1)
    described = ottla.json("groups", "describe", f"{name}-old")
    assert (described["protocol_type"], described["lag_records"]) == ("zookeeper", 4)
    assert "zookeeper" in ottla.run("groups", "describe", f"{name}-old").stdout


async def test_a_group_that_can_only_be_listed() -> None:
    admin = AsyncMock(Admin)
    admin.list_groups.return_value = {"packers": GroupListing("packers", "share", type="share")}
    error = await unknown_group(admin, "packers")
    assert error.message.startswith("packers is a group of type share")


@pytest.mark.ottla_only
def test_a_share_group_is_shown_and_reset(
    broker: BrokerProcess, ottla: Ottla, filled: tuple[str, int], new_name: Name
) -> None:
    topic, name = filled[0], new_name("group")
    join = ShareGroupHeartbeatRequest(group_id=name, member_id="m", subscribed_topic_names=[topic])

    def shown() -> list[tuple[int | None, int | None]]:
        partitions = ottla.json("groups", "describe", name)["partitions"]
        return [(each["start_offset"], each["lag_records"]) for each in partitions]

    with Wire(broker.port) as wire:
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), 4)
        wait_for(lambda: wire.call(join, 1).error_code == 0, "a member to join")
        (listed,) = ottla.json("groups", "list", name)
        assert (listed["type"], listed["members"], listed["protocol"]) == ("share", 1, "simple")
        assert shown() == [(None, None)] * 2
        target = ("--topic", topic, "--to-earliest")
        assert "has 1 member" in ottla.fails("groups", "reset-offsets", name, *target, "--execute")
        leave = ShareGroupHeartbeatRequest(group_id=name, member_id="m", member_epoch=-1)
        assert wire.call(leave, 1).error_code == 0
    assert reset(ottla, name, *target, "--execute") == {0: (None, 0), 1: (None, 0)}
    assert shown() == [(0, 5), (0, 0)]
    assert reset(ottla, name, "--all-topics", "--shift-by", "2", "--execute") == {0: (0, 2), 1: (0, 0)}
    assert shown() == [(2, 3), (0, 0)]
    (found,) = ottla.json("groups", "lag", name, "--once")
    assert [(each["committed"], each["lag_records"]) for each in found["partitions"]] == [(2, 3), (0, 0)]
    assert found["lag_records"] == 3
    assert found["lag_seconds"] > 0
    with SyncAdmin(broker.bootstrap) as admin:
        admin.delete_share_group_offsets(name, [topic])
        assert admin.share_group_offsets(name) == {}
        with pytest.raises(UnknownTopicError, match="no offsets of the topic"):
            admin.delete_share_group_offsets(name, [topic])
        unknown = TopicPartition(topic, 9)
        with pytest.raises(UnknownTopicError, match=f"{topic}-9"):
            admin.alter_share_group_offsets(name, {unknown: 1})
    assert name in ottla("groups", "delete", name, "--yes")
