"""Options of writers: names, meanings, and messages for wrong ones."""

from __future__ import annotations

import logging

import pytest

from ottla_pipeline.source.errors import OptionError
from ottla_pipeline.writing.options import WriteOptions, resolve

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def with_(**options: str) -> WriteOptions:
    return resolve({**SERVERS, **{name.replace("__", "."): value for name, value in options.items()}})


def test_what_is_not_set_has_the_defaults_of_the_producer_and_all_acknowledgements() -> None:
    options = resolve(SERVERS)
    assert options.topic is None
    assert options.skip_replayed == "task"
    assert options.on_too_large == "fail"
    assert options.producer() == {"delivery_timeout_ms": 120_000, "security_protocol": "PLAINTEXT"}


def test_names_are_taken_in_whatever_case_spark_gives_them() -> None:
    options = resolve({"KAFKA.Bootstrap.Servers": "a:1,b:2", "TOPIC": "t", "Kafka.Linger.Ms": "7"})
    assert options.bootstrap_servers == "a:1,b:2"
    assert options.topic == "t"
    assert options.producer()["linger_ms"] == 7


def test_settings_of_kafkas_producer_reach_the_producer() -> None:
    options = with_(
        kafka__acks="-1",
        kafka__compression__type="zstd",
        kafka__compression__zstd__level="5",
        kafka__max__request__size="2000000",
        kafka__batch__size="65536",
        kafka__enable__idempotence="true",
        kafka__client__id="me",
        kafka__request__timeout__ms="9000",
    )
    assert options.producer() == {
        "acks": "all",
        "batch_size": 65_536,
        "client_id": "me",
        "compression_level": 5,
        "compression_type": "zstd",
        "delivery_timeout_ms": 120_000,
        "enable_idempotence": True,
        "max_request_size": 2_000_000,
        "request_timeout_ms": 9_000,
        "security_protocol": "PLAINTEXT",
    }


def test_the_level_of_another_codec_is_left_alone() -> None:
    options = with_(kafka__compression__type="lz4", kafka__compression__zstd__level="5")
    assert "compression_level" not in options.producer()


def test_long_request_timeouts_make_room_for_a_delivery() -> None:
    options = with_(kafka__request__timeout__ms="200000")
    assert options.producer()["delivery_timeout_ms"] == 200_005


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({**SERVERS, "txnAppId": "a"}, "txnAppId is set, and txnVersion is not"),
        ({**SERVERS, "txnVersion": "1"}, "txnVersion is set, and txnAppId is not"),
        ({**SERVERS, "txnAppId": "a/b", "txnVersion": "1"}, "txnAppId is 'a/b'; letters"),
        ({**SERVERS, "txnAppId": "a", "txnVersion": "-1"}, "txnVersion is '-1'; a whole number from 0 on"),
        ({**SERVERS, "txnAppId": "a", "txnVersion": "1", "skipReplayed": "never"}, "recognises nothing"),
        ({**SERVERS, "tpoic": "t"}, "unknown option 'tpoic' for writing; did you mean topic?"),
        ({**SERVERS, "linger.ms": "5"}, "did you mean kafka.linger.ms?"),
        ({**SERVERS, "kafka.lingerms": "5"}, "did you mean kafka.linger.ms"),
        ({**SERVERS, "kafka.linger.ms": "soon"}, "kafka.linger.ms is 'soon'; a whole number"),
        ({**SERVERS, "kafka.acks": "2"}, "kafka.acks is '2'; it can be all"),
        ({**SERVERS, "kafka.compression.type": "brotli"}, "it can be none, gzip, snappy, lz4 or zstd"),
        ({**SERVERS, "kafka.key.serializer": "x"}, "kafka.key.serializer can't be set: keys are written"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "transactional is not: set transactional=true"),
        ({**SERVERS, "transactional": "yes"}, "transactional is 'yes'; it can be true or false"),
        ({**SERVERS, "transactional": "true", "kafka.transactional.id": ""}, "transactional.id is empty"),
        (
            {**SERVERS, "transactional": "true", "kafka.acks": "1"},
            "kafka.acks is 1, and transactional=true needs all",
        ),
        ({**SERVERS, "kafka.sasl.login.class": "x"}, "of SASL"),
        ({**SERVERS, "kafka.security.protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        ({**SERVERS, "topic": " "}, "the option topic is empty"),
        ({**SERVERS, "includeHeaders": "maybe"}, "includeHeaders is 'maybe'; it can be true or false"),
        ({**SERVERS, "onTooLarge": "deadletter"}, "set deadLetterTopic"),
        ({**SERVERS, "deadLetterTopic": "d"}, "onTooLarge is fail, and it has to be deadletter"),
        ({**SERVERS, "skipReplayed": "always"}, "it can be task, batch or never"),
        ({**SERVERS, "lookBackRecords": "0"}, "lookBackRecords is '0'"),
        ({**SERVERS, "xyzzy": "1"}, "docs/spark-writing.md lists all options"),
    ],
)
def test_wrong_options_are_one_line_that_says_what_is_right(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as error:
        resolve(options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_settings_for_java_alone_are_said_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla_pipeline"):
        options = with_(kafka__send__buffer__bytes="1000")
    assert "send.buffer.bytes has no effect" in caplog.text
    assert options.client == {}


def test_what_spark_itself_hands_to_sinks_is_no_mistake() -> None:
    assert resolve({**SERVERS, "checkpointLocation": "/c", "queryName": "q"}).topic is None
