"""Writing a DataFrame to topics, in batches and streams: ``format("ottla")`` as a sink.

options     what there is to set, and what the producer is made with
rows        which columns are key, value, headers, topic and partition, and their records as lists
identity    who writes: the header that each record carries
marks       where a batch began and ended in its topics, kept as offsets of a group
replay      what an earlier try of the same batch has written already
large       records that are too large: refused, left out, or taken apart for another topic
task        one task's records on their way
writers     the classes that Spark calls
"""

from .errors import RecordTooLarge as RecordTooLarge
from .errors import WriteError as WriteError
from .writers import BatchWriter as BatchWriter
from .writers import StreamWriter as StreamWriter
from .writers import Written as Written

__all__ = ["BatchWriter", "RecordTooLarge", "StreamWriter", "WriteError", "Written"]
