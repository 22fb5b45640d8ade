"""Reader and planner over TLS, with the options that Kafka's Java clients have for certificates as PEM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Certificates
from tests.support.proxy import Proxy

from ottla_client.sync import Producer
from ottla_pipeline.source.batch import OttlaReader
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.source.options import resolve

RECORDS = 20_000


def test_a_batch_over_tls(own_broker: Callable[..., Any], tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with Proxy(certificates.asking()) as front:
        broker = own_broker(settings={"advertised.listeners": f"PLAINTEXT://{front.address}"})
        front.target = broker.port
        given = {
            "kafka.bootstrap.servers": front.address,
            "kafka.request.timeout.ms": "5000",
            "subscribe": "t",
            "segments": "never",
        }
        tls = {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": certificates.authority,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.keystore.location": certificates.locked,
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.key.password": "secret",
        }
        with Producer(front.address, security_protocol="SSL", ssl_context=certificates.shown()) as producer:
            producer.send_batch("t", [b"%d" % number for number in range(RECORDS)]).result()
        reader = OttlaReader(resolve({**given, **tls}, stream=False), ("value",))
        read = [
            value
            for task in reader.partitions()
            for batch in reader.read(task)
            for value in batch.column("value").to_pylist()
        ]
        assert read == [b"%d" % number for number in range(RECORDS)]
        # One line, of who was asked.
        wrong = {**tls, "kafka.ssl.truststore.location": certificates.another}
        with pytest.raises(SourceError, match=rf"certificate of {front.address} is not trusted") as caught:
            OttlaReader(resolve({**given, **wrong}, stream=False), ("value",)).partitions()
        assert "\n" not in str(caught.value)
