"""How Spark finds ``format("ottla")``: an import that is light, and that fails for nobody."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

HEAVY = ("numba", "numpy", "ottla_client", "ottla_protocol", "pandas", "pyarrow")


def told(program: str) -> Any:
    """What a new Python prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout)


def test_spark_finds_it_at_no_cost() -> None:
    """Spark imports this in every application that uses any Python data source."""
    loaded = told(
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
    assert 'format("ottla") is not there' in done.stderr


def test_schema_and_options_are_checked_without_arrow() -> None:
    """What happens in the process that Spark makes a source in, for every query."""
    new = told(
        "import json, sys; import pyspark.sql.datasource; before = set(sys.modules)\n"
        "from pyspark_ottla import DefaultSource\n"
        "source = DefaultSource({'kafka.bootstrap.servers': 'b', 'subscribe': 't', 'includeheaders': 'true'})\n"
        "assert source.schema().count(',') == 8, source.schema()\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert not [module for module in new if module.split(".")[0] in ("numba", "numpy", "pandas", "pyarrow")]
