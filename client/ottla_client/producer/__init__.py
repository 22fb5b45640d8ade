"""Producing: records in, batches out, each delivered once and in order.

``Producer.send`` appends to the open batch of its partition (the appender fills the accumulator) and returns a
Delivery: nothing else is made for a record, and nothing is awaited unless memory or metadata is missing.
``sender.py`` closes and encodes batches, several requests in flight to each broker. ``queue.py``, without I/O or
clock, decides which batch of a partition goes next, so order and sequence numbers survive retries.
``transaction_manager.py`` says which request of a transaction is next, ``transactions.py`` asks the coordinators.

To change

- what an error means to the producer: ``producer/outcomes.py`` ``Outcome``; which batch goes next:
  ``producer/queue.py``
- what an error means to a transaction: ``producer/transaction_state.py`` ``REACTIONS``, its states ``TRANSITIONS``;
  what comes next: ``producer/transaction_manager.py`` ``TransactionManager`` ``next``
- when a batch is sent again: ``producer/outcomes.py`` ``OUTCOMES``, ``producer/queue.py`` ``answered``
"""

from .delivery import AppendedRange as AppendedRange
from .delivery import BatchDelivery as BatchDelivery
from .delivery import BatchDeliveryError as BatchDeliveryError
from .delivery import Delivery as Delivery
from .partitioner import Partitioner as Partitioner
from .producer import Producer as Producer
from .transaction import Transaction as Transaction
