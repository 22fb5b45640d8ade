"""Fetches Java programs from Maven Central into ``.cache``, once.

Each program has a folder with a generated ``pom.xml``, and in ``libs/`` the jars that it names and their dependencies.
A stamp, written last, marks a complete folder.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from harness.java import Unavailable, find_java

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
KAFKA_VERSION = "3.9.1"
"""The Kafka that Ottla is compared with."""
KAFKA_4_VERSION = "4.2.0"
"""The newest Kafka whose clients and broker the tests use."""

NEWEST_CLIENTS = "4.4.0"
"""The newest Kafka whose producer the tests use."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla.cache</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>{exclusions}
    </dependency>"""
_ALONE = """
      <exclusions>
        <exclusion>
          <groupId>*</groupId>
          <artifactId>*</artifactId>
        </exclusion>
      </exclusions>"""


def jars(name: str, coordinates: list[str], *, alone: bool = False) -> Path:
    """Return the folder with the jars of these ``group:artifact:version`` coordinates, fetching them if need be.

    ``alone`` leaves out their dependencies. Raises Unavailable if Java or Maven is missing, or Maven can't fetch them.
    """
    find_java()
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes one fetches, the others wait
        return _fetched(name, folder, coordinates, alone=alone)


def _fetched(name: str, folder: Path, coordinates: list[str], *, alone: bool) -> Path:
    stamp = folder / ".complete"
    pom = _POM.format(
        name=name,
        dependencies="\n".join(
            _DEPENDENCY.format(
                group=group, artifact=artifact, version=version, exclusions=_ALONE if alone else ""
            )
            for group, artifact, version in (coordinate.split(":") for coordinate in coordinates)
        ),
    )
    if stamp.exists() and stamp.read_text() == pom:
        return folder / "libs"
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("there is no mvn on the PATH")
    (folder / "pom.xml").write_text(pom)
    shutil.rmtree(folder / "libs", ignore_errors=True)
    command = [
        maven,
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DoutputDirectory=libs",
        "-DincludeScope=runtime",
    ]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise Unavailable(f"Maven could not fetch {name}: {lines[0] if lines else 'without a reason'}")
    stamp.write_text(pom)
    return folder / "libs"


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """Apache Kafka's broker and tools."""
    return jars(
        f"kafka-{version}",
        [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"],
    )


def client_jars(version: str) -> Path:
    """Apache Kafka's clients alone."""
    return jars(f"kafka-clients-{version}", [f"org.apache.kafka:kafka-clients:{version}"])


def spark_jars() -> str:
    """Spark's own Kafka connector as a value for ``spark.jars``; Spark brings the rest."""
    coordinates = [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.0",
    ]
    return ",".join(str(jar) for jar in sorted(jars("spark-kafka", coordinates, alone=True).glob("*.jar")))
