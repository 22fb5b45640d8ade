"""Finds a Java that is new enough for Kafka, ZooKeeper and Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from typing import Final

OLDEST: Final = 17
QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Options of a JVM that is to begin soon, rather than to become fast."""


class Unavailable(Exception):
    """This machine lacks a program or can't start one; the message is one line that says which."""


@cache
def find_java() -> str:
    """Return the path of ``java`` in JAVA_HOME or on the PATH. Raises Unavailable if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise Unavailable(f"Java {OLDEST} or later is needed, and there is none {where}")
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    found = re.search(r'version "(\d+)', printed)
    if found is None or int(found[1]) < OLDEST:
        version = found[1] if found else "unknown"
        raise Unavailable(f"Java {OLDEST} or later is needed; {java} is version {version}")
    return java
