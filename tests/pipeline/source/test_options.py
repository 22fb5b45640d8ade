"""Options of readers: valid ones, invalid ones, and their messages."""

from __future__ import annotations

import logging

import pytest

from ottla_client.settings import ConnectionSettings
from ottla_client.types import TopicPartition
from ottla_pipeline.source import kafka, names
from ottla_pipeline.source.errors import OptionError
from ottla_pipeline.source.names import OPTIONS
from ottla_pipeline.source.options import SourceOptions, check, need_dead_letter_topic, resolve
from ottla_pipeline.source.positions import Kind

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def stream(**options: str) -> SourceOptions:
    return resolve(
        {**LEAST, **{name.replace("__", "."): value for name, value in options.items()}}, stream=True
    )


def batch(**options: str) -> SourceOptions:
    return resolve(
        {**LEAST, **{name.replace("__", "."): value for name, value in options.items()}}, stream=False
    )


def test_defaults_are_those_of_sparks_connector() -> None:
    one, other = stream(), batch()
    assert one.starting.kind is Kind.LATEST
    assert other.starting.kind is Kind.EARLIEST
    assert other.ending.kind is Kind.LATEST
    assert one.topics.names == ("orders",)
    assert one.fail_on_data_loss
    assert not one.include_headers
    assert one.isolation == "read_uncommitted"
    assert one.limits.max_delay == 900
    assert not one.commit_offsets
    assert one.group is None


def test_names_have_no_case() -> None:
    made = resolve(
        {"KAFKA.Bootstrap.SERVERS": "b:1", "SUBSCRIBEPATTERN": "a.*", "failondataloss": "FALSE"}, stream=True
    )
    assert made.bootstrap_servers == "b:1"
    assert made.topics.pattern == "a.*"
    assert not made.fail_on_data_loss


def test_every_documented_option_is_taken() -> None:
    assert names.check([option.name for option in OPTIONS]) == []


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"subscribes": "x"}, "subscribe"),
        ({"startingOfset": "x"}, "startingOffsets"),
        ({"bootstrap.servers": "x"}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrapservers": "x"}, "kafka.bootstrap.servers"),
        ({"group.id": "x"}, "kafka.group.id"),
        ({"maxBytesPerTriger": "x"}, "maxBytesPerTrigger"),
        ({"xyzzy": "x"}, "docs/spark.md"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(given: dict[str, str], hint: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option .*{hint}"):
        resolve({**LEAST, **given}, stream=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribePattern": "a"}, "subscribe and subscribepattern are set"),
        ({"subscribe": " , "}, "names no topic"),
        ({"startingOffsets": "first"}, "earliest, latest, group"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "-3 is no whole number from -2 on"),
        ({"startingOffsets": '{"orders":{"a":1}}'}, '"a" is no partition'),
        ({"startingOffsets": '{"orders":{"0":true}}'}, "true is no whole number"),
        ({"startingOffsets": '{"orders":[1]}'}, "is no object"),
        ({"startingOffsets": '{"orders":'}, "startingOffsets is"),
        ({"startingTimestamp": "noon"}, "milliseconds"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "from 0 on"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "error or latest"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingTimestamp": "1"}, "a stream has no end"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1 on"),
        ({"maxOffsetsPerTrigger": "x"}, "maxOffsetsPerTrigger is 'x'"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "above maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
        ({"maxBytesPerTrigger": "0"}, "bytes above 0"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition is '-1'"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"segments": "sometimes"}, "auto, always or never"),
        ({"onCorrupt": "skip"}, "fail or deadletter"),
        ({"kafka.isolation.level": "read"}, "read_uncommitted or read_committed"),
        ({"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms is 'soon'"),
        ({"kafka.fetch.max.bytes": "0"}, "kafka.fetch.max.bytes is '0'"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets says"),
        ({"kafka.enable.auto.commit": "true"}, "commitOffsets=true"),
        ({"kafka.key.deserializer": "x"}, "keys are bytes"),
        ({"kafka.sasl.login.class": "x"}, "of SASL the client has"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "which needs security.protocol='SASL_SSL'"),
        ({"kafka.security.protocol": "SASL_SSL"}, "which needs sasl.mechanism"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": "a secret"},
            "kafka.sasl.jaas.config: a login has the form",
        ),
        ({"kafka.security.protocol": "TLS"}, "it can be PLAINTEXT, SSL"),
        ({"kafka.ssl.truststore.location": "/x.pem"}, "security.protocol is not SSL"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no/such.pem"}, "/no/such.pem"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "JKS"}, "PEM"),
        ({"commitOffsets": "true"}, "set kafka.group.id"),
        ({"startingOffsets": "group"}, "set kafka.group.id"),
        ({"fetchOffset.numRetries": "-1"}, "fetchOffset.numRetries"),
        ({"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs"),
    ],
)
def test_what_a_stream_refuses(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        resolve({**LEAST, **given}, stream=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "nothing to read"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "-1 .latest., which a batch can't have"),
        ({"endingOffsets": "earliest"}, "nothing to read"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "-2 .earliest., which a batch can't have"),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            "startingOffsets of orders-0 is 5, behind its endingOffsets, 4",
        ),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"1":6}}'},
            "name different partitions",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders":{"0":5}}',
                "endingOffsetsByTimestamp": '{"orders":{"0":4}}',
            },
            "behind its endingOffsetsByTimestamp",
        ),
    ],
)
def test_what_a_batch_refuses(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        resolve({**LEAST, **given}, stream=False)


@pytest.mark.parametrize("missing", list(LEAST))
def test_brokers_and_topics_have_to_be_named(missing: str) -> None:
    with pytest.raises(OptionError, match=r"missing|none of them"):
        resolve({name: value for name, value in LEAST.items() if name != missing}, stream=True)


def test_a_pattern_has_to_be_one() -> None:
    with pytest.raises(OptionError, match="no regular expression"):
        resolve({"kafka.bootstrap.servers": "b", "subscribePattern": "a["}, stream=True)
    with pytest.raises(OptionError, match="empty"):
        resolve({"kafka.bootstrap.servers": "b", "subscribePattern": " "}, stream=True)


def test_assigned_partitions() -> None:
    given = {"kafka.bootstrap.servers": "b", "assign": '{"b":[1,0],"a":[2]}'}
    assert resolve(given, stream=True).topics.assigned == (
        TopicPartition("a", 2),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )
    for wrong in ("{}", "[]", '{"a":"0"}', '{"a":[-1]}', "a"):
        with pytest.raises(OptionError, match="assign is"):
            resolve({**given, "assign": wrong}, stream=True)


def test_the_strongest_start_counts() -> None:
    both = stream(startingOffsets="earliest", startingOffsetsByTimestamp='{"orders":{"0":5}}')
    assert both.starting.kind is Kind.TIMES
    assert both.starting.of == {TopicPartition("orders", 0): 5}
    every = stream(startingOffsetsByTimestamp='{"orders":{"0":5}}', startingTimestamp="7")
    assert (every.starting.kind, every.starting.time) == (Kind.TIME, 7)
    assert not every.starting.or_latest
    assert stream(startingTimestamp="7", startingOffsetsByTimestampStrategy="LATEST").starting.or_latest


def test_a_group_is_committed_to_unless_it_is_not_wanted() -> None:
    made = stream(kafka__group__id="g")
    assert (made.group, made.commit_offsets, made.commit_required) == ("g", True, False)
    assert "group.id" not in made.client
    made = stream(kafka__group__id="g", commitOffsets="true")
    assert (made.commit_offsets, made.commit_required) == (True, True)
    made = stream(kafka__group__id="g", commitOffsets="false")
    assert (made.commit_offsets, made.commit_required) == (False, False)


def test_what_has_no_effect_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla_pipeline"):
        made = batch(
            kafka__max__poll__records="5", groupIdPrefix="x", maxOffsetsPerTrigger="5", maxTriggerDelay="1m"
        )
    said = " ".join(record.getMessage() for record in caplog.records)
    for name in ("kafka.max.poll.records", "groupIdPrefix", "maxOffsetsPerTrigger", "maxTriggerDelay"):
        assert name in said
    assert "max.poll.records" not in made.client


def test_times_and_sizes() -> None:
    made = stream(
        minOffsetsPerTrigger="5", maxTriggerDelay="90s", maxBytesPerTrigger="2m", maxBytesPerPartition="1g"
    )
    assert made.limits.max_delay == 90
    assert made.limits.max_bytes == 2 << 20
    assert made.splits.max_bytes == 1 << 30
    assert not made.splits.bytes_by_default


def test_how_tasks_read() -> None:
    made = stream(
        includeHeaders="true",
        kafka__isolation__level="READ_COMMITTED",
        kafka__fetch__max__bytes="1000000",
        kafka__max__partition__fetch__bytes="500000",
        kafkaConsumer__pollTimeoutMs="7000",
        segments="never",
        failOnDataLoss="false",
    )
    settings = made.read_settings()
    assert settings.columns[-1] == "headers"
    assert settings.isolation == "read_committed"
    assert settings.fetch_bytes == 500000
    assert settings.client["default.api.timeout.ms"] == "7000"
    assert settings.segments == "never"
    assert not settings.fail_on_data_loss
    assert made.read_settings(("offset",)).columns == ("offset",)


def test_tls() -> None:
    made = stream(kafka__security__protocol="ssl", kafka__ssl__endpoint__identification__algorithm="")
    context = ConnectionSettings(**kafka.client_options(made.client)).tls_context()
    assert not context.check_hostname
    with pytest.raises(OptionError, match="no check"):
        stream(kafka__security__protocol="SSL", kafka__ssl__endpoint__identification__algorithm="dns")


def test_client_settings_in_python_s_spelling() -> None:
    options = {
        "kafka.security_protocol": "SSL",
        "kafka.ssl_check_hostname": "false",
        "kafka.request_timeout_ms": "5000",
        "kafka.fetch_max_bytes": "1000",
    }
    made = resolve({**LEAST, **options}, stream=True)
    assert made.client["request.timeout.ms"] == "5000"
    assert made.client["fetch.max.bytes"] == "1000"
    settings = ConnectionSettings(**kafka.client_options(made.client))
    assert settings.request_timeout_ms == 5000
    assert not settings.ssl_check_hostname
    with pytest.raises(OptionError, match="did you mean"):
        resolve({**LEAST, "kafka.request_timeout_m": "5"}, stream=True)


def test_dead_letters_need_a_place_and_a_reason() -> None:
    need_dead_letter_topic(batch())
    need_dead_letter_topic(batch(onCorrupt="deadletter", deadLetterTopic="bad"))
    with pytest.raises(OptionError, match="set deadLetterTopic"):
        need_dead_letter_topic(batch(onCorrupt="deadletter"))
    with pytest.raises(OptionError, match="set onCorrupt=deadletter"):
        need_dead_letter_topic(batch(deadLetterTopic="bad"))


def test_what_is_wrong_for_both_is_found_when_a_table_is_loaded() -> None:
    check({**LEAST, "endingOffsets": "latest"})
    check({**LEAST, "startingOffsets": "latest", "maxOffsetsPerTrigger": "5"})
    for wrong in (
        {"subscribePattern": "x"},
        {"subscrib": "x"},
        {"startingOffsets": "first"},
        {"endingOffsets": "last"},
        {"commitOffsets": "true"},
        {"onCorrupt": "deadletter"},
    ):
        with pytest.raises(OptionError):
            check({**LEAST, **wrong})
