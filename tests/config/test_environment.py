"""Settings from environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.config import ConfigError, load_config
from ottla_broker.config.broker import all_keys
from ottla_broker.config.environment import read_environment, variable


def test_a_variable_is_a_key_in_capitals() -> None:
    found = read_environment(
        {
            "OTTLA_NUM_PARTITIONS": "3",
            "OTTLA_ZOOKEEPER_CLIENTCNXNSOCKET": "x",
            "KAFKA_NUM_PARTITIONS": "4",
            "HOME": "/root",
            "OTTLA_BOOTSTRAP_SERVER": "localhost:9092",
            "OTTLA_FAULT_SEED": "5",
            # What Kubernetes sets for a service of the name ottla.
            "OTTLA_SERVICE_HOST": "10.0.0.1",
            "OTTLA_SERVICE_PORT": "9092",
            "OTTLA_PORT": "tcp://10.0.0.1:9092",
            "OTTLA_PORT_9092_TCP_PORT": "9092",
        },
        all_keys(),
    )
    assert found.settings == {"num.partitions": "3", "zookeeper.clientCnxnSocket": "x"}
    assert found.variables["num.partitions"] == "OTTLA_NUM_PARTITIONS"
    assert found.warnings == []


def test_each_key_has_its_own_variable() -> None:
    assert len({variable(key) for key in all_keys()}) == len(all_keys())


def test_a_misspelt_variable_is_a_warning() -> None:
    made = load_config(None, {}, environ={"OTTLA_NUM_PARTITION": "3"})
    assert made.num_partitions == 1
    assert made.warnings == [
        "environment variable OTTLA_NUM_PARTITION matches no key; did you mean OTTLA_NUM_PARTITIONS?"
    ]


def test_the_environment_overrides_the_file_and_the_command_line_both(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nnum.network.threads=2\nbackground.threads=5\n")
    environ = {"OTTLA_NUM_PARTITIONS": "4", "OTTLA_NUM_NETWORK_THREADS": "6"}
    made = load_config(path, {"num.partitions": "7"}, environ=environ)
    assert (made.num_partitions, made.num_network_threads, made.background_threads) == (7, 6, 5)
    assert load_config(path, {}).num_partitions == 3


def test_an_error_names_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"^environment \(OTTLA_NUM_PARTITIONS\): num\.partitions: 'x'"):
        load_config(None, {}, environ={"OTTLA_NUM_PARTITIONS": "x"})
