"""The parts of the client for packages that build on it, such as connectors.

``Cluster`` gives connections to brokers and fresh metadata; functions such as `find_offsets` send single requests, with
retries. Everything here may change in a minor release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_names

if TYPE_CHECKING:
    from .arrow import Part as Part
    from .arrow import to_arrow as to_arrow
    from .cluster import Cluster as Cluster
    from .deadline import Deadline as Deadline
    from .errors import is_retriable as is_retriable
    from .option_names import in_kafka_names as in_kafka_names
    from .option_names import kafka_name as kafka_name
    from .option_names import kafka_names as kafka_names
    from .option_names import read_options as read_options
    from .requests.fetch import LAST_BY_NAME as LAST_BY_NAME
    from .requests.fetch import FetchPosition as FetchPosition
    from .requests.fetch import fetch_request as fetch_request
    from .requests.large_batch import MAX_HEADERS as MAX_HEADERS
    from .requests.leader_epochs import EpochEnd as EpochEnd
    from .requests.leader_epochs import ask_epochs as ask_epochs
    from .requests.list_offsets import find_offsets as find_offsets
    from .settings import DEFAULT_BOOTSTRAP as DEFAULT_BOOTSTRAP
    from .settings import ConnectionOptions as ConnectionOptions
    from .settings import ConnectionSettings as ConnectionSettings
    from .suggestions import did_you_mean as did_you_mean
    from .suggestions import near_names as near_names
    from .sync.runner import Runner as Runner

_HOMES = {
    "ottla_client.arrow": "Part to_arrow",
    "ottla_client.cluster": "Cluster",
    "ottla_client.deadline": "Deadline",
    "ottla_client.errors": "is_retriable",
    "ottla_client.option_names": "in_kafka_names kafka_name kafka_names read_options",
    "ottla_client.requests.fetch": "LAST_BY_NAME FetchPosition fetch_request",
    "ottla_client.requests.large_batch": "MAX_HEADERS",
    "ottla_client.requests.leader_epochs": "EpochEnd ask_epochs",
    "ottla_client.requests.list_offsets": "find_offsets",
    "ottla_client.settings": "DEFAULT_BOOTSTRAP ConnectionOptions ConnectionSettings",
    "ottla_client.suggestions": "did_you_mean near_names",
    "ottla_client.sync.runner": "Runner",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
