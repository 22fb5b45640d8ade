"""The consumer: records of topics or partitions, alone or in a group, one by one, as lists, or as Arrow tables."""

from .consumer import Consumer as Consumer
from .listener import RebalanceListener as RebalanceListener
