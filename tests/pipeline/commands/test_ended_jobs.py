"""``ottla pipeline`` as a process of its own, which is ended amid its work."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.pipeline.audit.landed import produce
from tests.pipeline.conftest import SUBMIT
from tests.support.commands import finish, spawn
from tests.support.processes import BrokerProcess


@pytest.mark.parametrize("by", ["Ctrl-C", "Java's end"])
def test_ended_amid_its_work(
    broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path, by: str
) -> None:
    topic = new_topic(1)
    produce(broker, topic, 0, [b'{"flight": %d}' % number for number in range(100)])
    logs = tmp_path / "tmp"
    logs.mkdir()
    args = [
        "pipeline",
        "land",
        topic,
        "--table",
        str(tmp_path / "t"),
        "--trigger",
        "1s",
        "--json",
        "--master",
        "local[1]",
    ]
    process = spawn(broker.bootstrap, *args, env={**SUBMIT, "TMPDIR": str(logs)})
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        if by == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        else:
            children = psutil.Process(process.pid).children(recursive=True)
            next(child for child in children if child.name() == "java").kill()
        done = finish(process)
    finally:
        process.kill()
        process.wait()
    assert first["rows"] == 100
    left = [file.name for file in logs.iterdir() if file.name.startswith("ottla-")]
    if by == "Ctrl-C":
        assert (done.code, done.err) == (130, "")
        assert not left, "nothing is left behind"
    else:
        assert done.code == 1
        last = done.err.splitlines()[-1]
        assert last.startswith(
            "Error: Spark's Java process has ended: it was killed, or had too little memory"
        )
        assert len(left) == 1
        assert f"{left[0]}/spark.log" in last
