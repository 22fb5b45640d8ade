"""The options of every client: their types, defaults and checks, and TLS from files."""

from __future__ import annotations

import re
import ssl
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from ottla_client import Admin, Consumer, Delivery, Producer, sync
from ottla_client.admin.base import AdminOptions, AdminSettings
from ottla_client.consumer.settings import ConsumerOptions, ConsumerSettings
from ottla_client.coordinated_consumer.settings import (
    CoordinatedConsumerOptions,
    CoordinatedConsumerSettings,
)
from ottla_client.errors import ConfigurationError
from ottla_client.foreign_options import _ADVICE
from ottla_client.option_names import kafka_name, kafka_names, option_name, read_options
from ottla_client.producer.settings import ProducerOptions, ProducerSettings
from ottla_client.settings import ConnectionOptions, ConnectionSettings
from ottla_client.share_consumer.settings import ShareConsumerOptions, ShareConsumerSettings
from ottla_client.simple_consumer import SimpleConsumerOptions, SimpleConsumerSettings
from ottla_client.zookeeper_consumer.settings import ZookeeperConsumerOptions, ZookeeperConsumerSettings


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (ConnectionOptions, ConnectionSettings),
        (AdminOptions, AdminSettings),
        (ConsumerOptions, ConsumerSettings),
        (CoordinatedConsumerOptions, CoordinatedConsumerSettings),
        (ProducerOptions, ProducerSettings),
        (ShareConsumerOptions, ShareConsumerSettings),
        (SimpleConsumerOptions, SimpleConsumerSettings),
        (ZookeeperConsumerOptions, ZookeeperConsumerSettings),
    ],
)
def test_the_keyword_arguments_are_the_settings(options: type, settings: type[ConnectionSettings]) -> None:
    hints = get_type_hints(settings)
    assert get_type_hints(options) == {field.name: hints[field.name] for field in fields(settings)}


@pytest.mark.parametrize("module", [sync, None])
def test_an_unknown_option_gets_a_suggestion(module: Any) -> None:
    for client in (
        (Admin, Consumer, Producer) if module is None else (sync.Admin, sync.Consumer, sync.Producer)
    ):
        with pytest.raises(TypeError, match=r"has no option client_di; did you mean client_id"):
            client(client_di="x")  # type: ignore[call-arg]
        for name in ("bootstrap_server", "bootstrap.servers"):
            with pytest.raises(TypeError, match="did you mean bootstrap_servers"):
                client(**{name: "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("retries", "use delivery_timeout_ms"),
        ("api_version", "asks each broker"),
        ("sasl_kerberos_service_name", "of SASL the client has"),
        ("loop", "running event loop"),
        ("statistics_interval_ms", r"metrics\(\)"),
    ],
)
def test_options_of_other_clients_are_explained(name: str, advice: str) -> None:
    for client in (Admin, Consumer, Producer, sync.Producer):
        with pytest.raises(TypeError, match=f"has no option {name}; .*{advice}"):
            client(**{name: "x"})  # type: ignore[arg-type]
    for spelling in (name, name.replace("_", ".")):
        with pytest.raises(ConfigurationError, match=f"no option {spelling}; .*{advice}"):
            read_options({spelling: "x"}, ProducerSettings)


def test_blanks_around_a_text_are_dropped_as_kafka_does() -> None:
    texts = {"acks": " 1\t", "sasl.password": "\fa b ", "enable.idempotence": " true ", "linger.ms": " 5 "}
    found = read_options({**texts, "client.id": "\u00a0x "}, ProducerSettings)
    assert found == {
        "acks": 1,
        "sasl_plain_password": "a b",
        "enable_idempotence": True,
        "linger_ms": 5.0,
        "client_id": "\u00a0x",
    }


def test_the_advice_names_options_and_methods_that_exist() -> None:
    settings = (AdminSettings, ConsumerSettings, ProducerSettings)
    options = {"bootstrap_servers", *(field.name for each in settings for field in fields(each))}
    methods = {*dir(Consumer), *dir(Producer), *dir(Delivery), "timeout_ms"}
    for name, advice in _ADVICE.items():
        assert name not in options
        for word in re.findall(r"use (\w+)", advice):
            assert word in options
        for word in re.findall(r"\b[a-z]+_[a-z_]+", advice):
            assert word in options | methods | {"ottla_client"}, word


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile is given, which needs security_protocol='SSL'"),
        ({"ssl_check_hostname": False}, "ssl_check_hostname is given"),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, "need ssl_certfile"),
        (
            {"security_protocol": "SSL", "ssl_cafile": "x", "ssl_context": ssl.create_default_context()},
            "both",
        ),
    ],
)
def test_tls_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Producer(**options)


def test_tls_from_files(tmp_path: Path) -> None:
    context = ConnectionSettings(security_protocol="SSL", ssl_check_hostname=False).tls_context()
    assert isinstance(context, ssl.SSLContext)
    assert not context.check_hostname
    with pytest.raises(ConfigurationError, match=r"nowhere\.pem"):
        Producer(security_protocol="SSL", ssl_cafile=f"{tmp_path}/nowhere.pem")
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n")
    with pytest.raises(
        ConfigurationError, match=r"key\.pem: OpenSSL can't use them; .* certificates in ssl_cafile"
    ):
        Producer(security_protocol="SSL", ssl_certfile=str(key))


def test_names_in_both_spellings() -> None:
    for name in kafka_names(ProducerSettings):
        if name not in ("ssl.truststore.type", "ssl.keystore.type"):
            assert option_name(kafka_name(option_name(name))) == option_name(name)
    assert kafka_name("ssl_cafile") == kafka_name("ssl.cafile") == "ssl.truststore.location"
    assert kafka_name("linger_ms") == kafka_name("linger-ms") == kafka_name("linger.ms") == "linger.ms"
    assert option_name("ssl.ca.location") == option_name("ssl.truststore.location") == "ssl_cafile"
