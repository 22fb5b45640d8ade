"""Landing and reading on a standalone cluster that has Ottla only from an archive (``--py-files``)."""

from __future__ import annotations

import json
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.landing.rounds import offsets
from tests.pipeline.source.conftest import Put

import ottla_client
import ottla_pipeline
import ottla_protocol
import pyspark_ottla
from ottla_client.sync import Admin
from ottla_client.types import TopicPartition
from ottla_pipeline.landing import Landing
from ottla_pipeline.landing.job_plan import table_of

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess
    from tests.support.spark import SparkCluster

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

options, checkpoint, result = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
from ottla_pipeline.source import register
from ottla_pipeline.landing import Landing, land
spark = SparkSession.builder.getOrCreate()
found = {}
topic, table = options["subscribe"], checkpoint + "-table"
servers = options["kafka.bootstrap.servers"]
job = Landing(servers, table, topics=(topic,), format="parquet", segments="never", max_records=50, restarts=5)
done = land(job, spark)
found["landed"] = [done.rows, done.batches]
found["table"] = spark.read.parquet(table).count()
register(spark)
register(spark)
table = spark.read.format("ottla").options(**options).option("minPartitions", "4").load()
found["batch"] = table.selectExpr("count(*)", "sum(offset)", "count(DISTINCT partition)").collect()[0][:]
rows = []
stream = spark.readStream.format("ottla").options(**options).option("startingOffsets", "earliest")
stream = stream.option("kafka.group.id", "cluster").option("maxOffsetsPerTrigger", "60").load()
def take(batch, number):
    rows.extend(batch.select("partition", "offset").collect())
def run():
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
for patience in range(5):
    try:
        run()
        break
    except Exception as error:
        if "Python worker failed to connect back" not in str(error):
            raise
found["stream"] = sorted([row.partition, row.offset] for row in rows)
def installed(_):
    import importlib
    import ottla_pipeline
    there = []
    for name in ("numba", "deltalake", "pyiceberg"):
        try:
            importlib.import_module(name)
            there.append(name)
        except ImportError:
            pass
    return [there, ottla_pipeline.__file__]
found["installed"] = spark.sparkContext.parallelize([0], 1).map(installed).collect()[0]
with open(result, "w") as file:
    json.dump(found, file)
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The packages as a user would zip them."""
    made = tmp_path / "ottla.zip"
    with zipfile.ZipFile(made, "w") as archive:
        for package in (ottla_pipeline, pyspark_ottla, ottla_client, ottla_protocol):
            folder = Path(package.__path__[0])
            for file in sorted(folder.rglob("*")):
                if file.suffix in (".py", ".so"):
                    archive.write(file, file.relative_to(folder.parent))
    return made


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with all that is installed here, but Ottla; numba and the lakehouse's packages can't be imported."""
    home = tmp_path / "python"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    # Packages of the folder are found; what its own .pth files add, such as editable installs, is not.
    (site / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        # As in the conftest: Spark's archive of pyspark would be compiled in each process.
        "sys.path[:] = [place for place in sys.path if not place.endswith('/pyspark.zip')]\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('numba', 'deltalake', 'pyiceberg'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    return home / "bin" / "python"


def test_everything_comes_with_the_archive(
    spark_cluster: SparkCluster,
    archive: Path,
    python: Path,
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    put: Put,
    admin: Admin,
    tmp_path: Path,
) -> None:
    topic = new_topic(2)
    put(topic, 70)
    put(topic, 30, partition=1)
    program, result = tmp_path / "program.py", tmp_path / "result.json"
    program.write_text(PROGRAM)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "segments": "never"}
    done = spark_cluster.submit(
        program,
        *(json.dumps(options), str(tmp_path / "checkpoint"), str(result)),
        python=str(python),
        options=("--py-files", str(archive)),
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = json.loads(result.read_text())
    assert (found["landed"], found["table"]) == ([100, 2], 100)
    landing = Landing(broker.bootstrap, f"{tmp_path}/checkpoint-table", topics=(topic,), format="parquet")
    assert offsets(landing, topic) == [list(range(70)), list(range(30))]
    assert table_of(landing).offsets() == {topic: {0: 70, 1: 30}}
    assert found["batch"] == [100, sum(range(70)) + sum(range(30)), 2]
    assert found["stream"] == [[0, each] for each in range(70)] + [[1, each] for each in range(30)]
    there, where = found["installed"]
    assert "ottla.zip" in where
    assert there == []
    committed = admin.list_group_offsets("cluster")
    assert {each.partition: at.offset for each, at in committed.items()} == {0: 70, 1: 30}
    assert TopicPartition(topic, 0) in committed
