"""The connection to a cluster: metadata, brokers, coordinators, retries."""

from .backoff import Backoff as Backoff
from .backoff import retrying as retrying
from .cluster import Cluster as Cluster
from .coordinators import CoordinatorType as CoordinatorType
