"""Producing: records in, batches out, each delivered once and in order."""

from .delivery import AppendedRange as AppendedRange
from .delivery import BatchDelivery as BatchDelivery
from .delivery import BatchDeliveryError as BatchDeliveryError
from .delivery import Delivery as Delivery
from .partitioner import Partitioner as Partitioner
from .producer import Producer as Producer
from .transaction import Transaction as Transaction
