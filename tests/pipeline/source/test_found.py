"""How Spark finds ``format("ottla")``: by a light import that never fails, or by ``register``."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.pipeline.conftest import SUBMIT
from tests.pipeline.landing.rounds import produce
from tests.support.processes import BrokerProcess

HEAVY = ("numba", "numpy", "ottla_client", "ottla_protocol", "pandas", "pyarrow")


def reported(program: str) -> Any:
    """What a new Python prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout)


def test_spark_finds_it_at_no_cost() -> None:
    """Spark imports this in every application that uses any Python data source."""
    loaded = reported(
        "import json, sys; import pyspark.sql.datasource; before = set(sys.modules)\n"
        "import pyspark_ottla; new = sorted(set(sys.modules) - before)\n"
        "print(json.dumps([pyspark_ottla.DefaultSource.name(), new]))"
    )
    name, new = loaded
    assert name == "ottla"
    assert not [module for module in new if module.split(".")[0] in HEAVY]
    assert len(new) < 20, new


def test_half_an_installation_breaks_no_other_source() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules['ottla_pipeline'] = None\n"
            "import pyspark_ottla; print(hasattr(pyspark_ottla, 'DefaultSource'))",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "False\n"
    assert 'format("ottla") is not available' in done.stderr


def test_schema_and_options_are_checked_without_arrow() -> None:
    """What happens in the process that Spark makes a source in, for every query."""
    new = reported(
        "import json, sys; import pyspark.sql.datasource; before = set(sys.modules)\n"
        "from pyspark_ottla import DefaultSource\n"
        "source = DefaultSource({'kafka.bootstrap.servers': 'b', 'subscribe': 't', 'includeheaders': 'true'})\n"
        "assert source.schema().count(',') == 8, source.schema()\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert not [module for module in new if module.split(".")[0] in ("numba", "numpy", "pandas", "pyarrow")]


PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("FATAL")

servers, topic, lake = sys.argv[1:]
reader = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
try:
    reader.load()
except Exception as error:
    print("[DATA_SOURCE_NOT_FOUND]" in str(error))

from ottla_pipeline import register
register(spark)
print(reader.load().count())

from ottla_pipeline.landing import Landing, land
print(land(Landing(servers, lake + "/table", topics=topic), spark).rows)
"""


def test_one_line_where_spark_runs_another_python(
    broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """As ``.venv/bin/python job.py`` without an activated environment: the PATH's python3 has no Ottla."""
    topic = new_topic()
    produce(broker.bootstrap, topic, [b"x"] * 10)
    other, program = tmp_path / "bin/python3", tmp_path / "job.py"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    other.chmod(0o755)
    program.write_text(PROGRAM)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    env |= {**SUBMIT, "PATH": f"{other.parent}{os.pathsep}{env['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(program), broker.bootstrap, topic, str(tmp_path / "lake")],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.stdout.split(), done.returncode) == (["True", "10", "10"], 0), done.stderr[-4000:]
