"""What the client knows of a cluster, and how it talks to it."""

from .backoff import Backoff as Backoff
from .backoff import retrying as retrying
from .cluster import Cluster as Cluster
