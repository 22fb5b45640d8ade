"""Java programs from Maven Central, kept in a folder that git ignores.

A folder holds a generated ``pom.xml``, and in ``libs/`` the jars it names with what they depend on. It is
made once; a stamp written last says that it is whole.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
KAFKA_VERSION = "3.9.1"
"""The Kafka that Ottla is measured against."""
KAFKA_4_VERSION = "4.2.0"
"""The newest Kafka whose clients, and whose broker, the tests know."""

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


class Unavailable(Exception):
    """Something this machine lacks; the text is one line that says what."""


def java() -> str:
    """The ``java`` on the PATH, or :class:`Unavailable`."""
    found = shutil.which("java")
    if found is None:
        raise Unavailable("there is no java on the PATH")
    return found


def jars(name: str, coordinates: list[str], *, alone: bool = False) -> Path:
    """The folder with the jars of ``group:artifact:version`` coordinates, fetched at its first use.

    ``alone``: without what they depend on.
    Raises :class:`Unavailable` where there is no Java, no Maven, or Maven cannot get them.
    """
    java()
    folder = CACHE / name
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
    folder.mkdir(parents=True, exist_ok=True)
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
        raise Unavailable(f"Maven could not fetch {name}: {lines[0] if lines else 'it gave no reason'}")
    stamp.write_text(pom)
    return folder / "libs"


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """Apache Kafka's broker and tools."""
    return jars(
        f"kafka-{version}",
        [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"],
    )


def spark_jars() -> str:
    """Spark's own Kafka connector, as ``spark.jars`` takes it. What else it needs comes with Spark."""
    coordinates = [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.0",
    ]
    return ",".join(str(jar) for jar in sorted(jars("spark-kafka", coordinates, alone=True).glob("*.jar")))
