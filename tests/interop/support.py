"""Programs of other languages as the tests run them: to their end, or skipped for what is missing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import maven
from harness.java import QUICK, find_java

PROGRAMS = Path(__file__).parent / "programs"
TOOLS = "org.apache.kafka.tools"

# Where each tool's main class lives, by Kafka's version: they moved from the core to kafka-tools over the
# years.
MAINS = {
    "2.8.2": {
        "console-producer": "kafka.tools.ConsoleProducer",
        "console-consumer": "kafka.tools.ConsoleConsumer",
        "topics": "kafka.admin.TopicCommand",
        "groups": "kafka.admin.ConsumerGroupCommand",
    },
    "3.9.1": {
        "console-producer": "kafka.tools.ConsoleProducer",
        "console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
        "topics": f"{TOOLS}.TopicCommand",
        "groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
        "acls": "kafka.admin.AclCommand",
        "client-metrics": f"{TOOLS}.ClientMetricsCommand",
        "features": f"{TOOLS}.FeatureCommand",
        "configs": "kafka.admin.ConfigCommand",
        "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
        "api-versions": "kafka.admin.BrokerApiVersionsCommand",
        "cluster": f"{TOOLS}.ClusterTool",
        "delete-records": f"{TOOLS}.DeleteRecordsCommand",
        "dump-log": "kafka.tools.DumpLogSegments",
        "get-offsets": f"{TOOLS}.GetOffsetShell",
        "log-dirs": f"{TOOLS}.LogDirsCommand",
        "leader-election": f"{TOOLS}.LeaderElectionCommand",
        "reassign": f"{TOOLS}.reassign.ReassignPartitionsCommand",
        "transactions": f"{TOOLS}.TransactionsCommand",
        "verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
        "verifiable-producer": f"{TOOLS}.VerifiableProducer",
    },
    "4.2.0": {
        "console-producer": f"{TOOLS}.ConsoleProducer",
        "console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
        "topics": f"{TOOLS}.TopicCommand",
        "groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
        "share-groups": f"{TOOLS}.consumer.group.ShareGroupCommand",
        "all-groups": f"{TOOLS}.GroupsCommand",
        "configs": "kafka.admin.ConfigCommand",
    },
}

# What DumpLogSegments says of files that aren't right, most of it on stderr. Its exit code is 0 nevertheless.
DUMP_COMPLAINTS = (
    "mismatch",
    "Mismatches in",
    "Non-consecutive offsets",
    "out of order",
    "not found in the log",
    "invalid bytes",
    "isvalid: false",
    "isValid: false",
    "rror",
    "Exception",
    "orrupt",
    "unknown file",
)


def run(
    command: list[str],
    *,
    stdin: str | None = None,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
    timeout: float = 180.0,
    with_errors: bool = False,
) -> str:
    """A program's standard output; the test fails with all it wrote when its exit code is not 0.

    ``with_errors`` puts its standard error before it.
    """
    done = subprocess.run(
        command,
        input=stdin or "",
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        pytest.fail(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done.stderr + done.stdout if with_errors else done.stdout


@dataclass(frozen=True, slots=True)
class Java:
    """The tools of one version of Kafka, against one broker."""

    address: str
    version: str
    libs: Path
    log4j: Path

    def command(self, main: str, *arguments: str, classes: Path | None = None) -> list[str]:
        """The command line of a main class; ``classes`` is a folder of our own beside Kafka's jars."""
        options = ["-Xmx256M", *QUICK]
        if self._archive.exists():
            options += [f"-XX:SharedArchiveFile={self._archive}", "-Xlog:disable"]
        return [*self._java(), *options, "-cp", self._classpath(classes), main, *arguments]

    @property
    def _archive(self) -> Path:
        return self.libs.parent / "classes.jsa"

    def _java(self) -> list[str]:
        return [find_java(), f"-Dlog4j.configuration=file:{self.log4j}"]

    def _classpath(self, classes: Path | None) -> str:
        # Spelt out and in order: a class archive is only used where its classpath begins the program's.
        return ":".join([*map(str, sorted(self.libs.glob("*.jar"))), *([str(classes)] if classes else [])])

    def archive_classes(self) -> None:
        """Once for each version: keep the classes of a first run, which halves the start of later ones."""
        if self._archive.exists():
            return
        options = [f"-XX:ArchiveClassesAtExit={self._archive}", *QUICK, "-Xlog:disable"]
        command = [*self._java(), *options, "-cp", self._classpath(None), MAINS[self.version]["topics"]]
        run([*command, "--bootstrap-server", self.address, "--list"])

    def dump_log(self, files: list[Path], *arguments: str) -> str:
        """What Kafka's DumpLogSegments prints of files; it reads all of them and finds nothing amiss."""
        assert files
        main = MAINS[self.version]["dump-log"]
        command = self.command(main, "--files", ",".join(map(str, files)), *arguments)
        output = run(command, with_errors=True)
        for complaint in DUMP_COMPLAINTS:
            assert complaint not in output, (complaint, output[-3000:])
        assert output.count("Dumping ") == len(files)
        return output

    def tool(self, name: str, *arguments: str, stdin: str | None = None) -> str:
        """Run a tool with ``--bootstrap-server`` and give back what it printed."""
        main = MAINS[self.version][name]
        return run(self.command(main, "--bootstrap-server", self.address, *arguments), stdin=stdin)

    def produce(self, topic: str, lines: list[str], *arguments: str) -> None:
        """The console producer; with keys before a tab where ``parse.key`` is among the arguments."""
        self.tool("console-producer", "--topic", topic, *arguments, stdin="\n".join(lines) + "\n")

    def consume(self, topic: str, count: int, *arguments: str) -> list[str]:
        """The records the console consumer prints, from the beginning: ``count``, or what comes in 30 s."""
        limits = ["--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000"]
        lines = self.tool("console-consumer", "--topic", topic, *limits, *arguments).splitlines()
        return [line for line in lines if " is deprecated and will be removed " not in line]


def needed(program: str) -> str:
    """A program's path; the test is skipped where it is missing."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no {program} on the PATH")
    return found


def json_lines(output: str) -> list[dict[str, Any]]:
    """The lines of an output that are JSON objects."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def built(name: str, sources: Path, made: str, command: list[str]) -> Path:
    """The cache folder with the sources and what the command has ``made`` of them; skips where it cannot fetch."""
    folder = maven.CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test process may build the same
        shutil.copytree(sources, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
        )
    if done.returncode:
        if (folder / made).exists():
            pytest.fail(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        pytest.skip(f"{name} is not to be had: {' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
    return folder
