"""Completion in shells: the scripts, and names of topics and groups from a broker."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest
from harness.ports import free_port
from tests.support.commands import Outcome, Shell, ottla
from tests.support.processes import BrokerProcess


def complete(bootstrap: str, *words: str) -> list[str]:
    """The completions in bash after these words; the last word is incomplete."""
    line = " ".join(("ottla", *words))
    env = {"_OTTLA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    done: Outcome = ottla(bootstrap, env=env)
    assert (done.code, done.err) == (0, "")
    return [found.partition(",")[2] for found in done.out.decode().split()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_valid_in_the_shell(shell: str) -> None:
    done = ottla("127.0.0.1:1", "completion", shell)
    assert done.code == 0
    assert b"_OTTLA_COMPLETE" in done.out
    if path := shutil.which(shell):
        subprocess.run([path, "-n"], input=done.out, check=True, timeout=60)


def test_names_of_topics_and_groups(
    broker: BrokerProcess, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    topic, group = new_topic(prefix="complete-me"), new_name("complete-group")
    shell = Shell(broker.bootstrap)
    shell("produce", topic, data=b"1\n")
    assert shell("consume", topic, "-g", group, "-n", "1").code == 0
    assert complete(broker.bootstrap, "consume", "complete-m") == [topic]
    assert complete(broker.bootstrap, "consume", topic, "--group", "complete-g") == [group]
    assert complete("127.0.0.1:1", "produce", "-b", broker.bootstrap, "complete-m") == [topic]
    address = f"bootstrap.servers={broker.bootstrap}"
    assert complete("127.0.0.1:1", "consume", "-X", "fetch.min.bytes=1", "-X", address, "complete-m") == [
        topic
    ]
    assert complete(broker.bootstrap, "consume", "-X", "security.protocol=SSL", "complete-m") == []
    assert "produce" in complete("127.0.0.1:1", "prod")


def test_without_a_broker_completion_is_silent() -> None:
    assert complete(f"127.0.0.1:{free_port()}", "consume", "f") == []
