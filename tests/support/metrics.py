"""Scrapes of brokers, read by prometheus-client's parser."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

LISTENER = {"metrics.listener": "127.0.0.1:0"}
"""Any free port; the broker's log says which."""

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def parse(text: str) -> Samples:
    """Values by name and labels. A repeated sample, or a metric in two places, is an error."""
    found: Samples = {}
    families = set()
    for family in text_string_to_metric_families(text):
        assert family.name not in families, f"{family.name} comes twice"
        assert family.documentation, f"{family.name} has no help"
        families.add(family.name)
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            key = tuple(sorted(sample.labels.items()))
            assert key not in values, f"{sample.name}{key} comes twice"
            values[key] = sample.value
    return found


class Scraped:
    """One scrape: ``scraped("name", topic="t")`` is a value; without such a sample it is None."""

    def __init__(self, text: str) -> None:
        self.samples = parse(text)

    def __call__(self, name: str, **labels: object) -> float | None:
        key = tuple(sorted((label, str(value)) for label, value in labels.items()))
        return self.samples.get(name, {}).get(key)


def address_of(broker: BrokerProcess) -> str:
    """Where a broker serves its metrics."""

    def find() -> str:
        served = [each for each in broker.events() if each["event"] == "metrics are served"]
        return str(served[-1]["address"]) if served else ""

    return wait_for(find, "the metrics' address")


def get(address: str, path: str) -> tuple[int, str, Mapping[str, str]]:
    """Status, body and headers of a page."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as response:
            return response.status, response.read().decode(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers  # type: ignore[return-value]


def scrape(broker: BrokerProcess) -> Scraped:
    """The metrics of a broker that has :data:`LISTENER`."""
    status, text, headers = get(address_of(broker), "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return Scraped(text)


def health(broker: BrokerProcess) -> tuple[int, dict[str, Any]]:
    """Status and document of ``/health/ready``."""
    status, text, _ = get(address_of(broker), "/health/ready")
    return status, json.loads(text)
