"""Writes DataFrames to topics, in batches and streams: ``format("ottla")`` as a sink.

options     the options, and the producer's arguments that they become
rows        the columns of a DataFrame as keys, values, headers, topics and partitions
identity    the header that each record carries: writer, batch and task
marks       where a batch began and ended in its topics, kept as offsets of a group
replay      finds what an earlier try of the same batch has written
large       records that are too large: refused, left out, or split for another topic
lookback    finds out what earlier tries have written, before a topic's first row is sent
task        writes one task's rows
packing     rows on their way from a task to the driver
transaction writes a whole batch in one transaction, on the driver
writers     the classes that Spark calls

To change

- when a batch that Spark writes becomes visible: ``writing/task.py`` ``TaskWriter``; in a transaction
  ``writing/transaction.py`` ``BatchTransaction``; why: ``docs/decisions/0014``
"""

from .errors import RecordTooLarge as RecordTooLarge
from .errors import WriteError as WriteError
from .writers import BatchWriter as BatchWriter
from .writers import StreamWriter as StreamWriter
from .writers import Written as Written

__all__ = ["BatchWriter", "RecordTooLarge", "StreamWriter", "WriteError", "Written"]
