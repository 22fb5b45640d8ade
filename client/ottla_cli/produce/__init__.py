"""``ottla produce``: sends records from lines, JSON lines, CSV or whole files.

Read ``command.py`` first, then ``parsers.py``: what an input becomes, columns of keys and values; then
``records.py``, the run that sends them, and ``transactions.py``, the same within a transaction. ``input_files.py``
reads in a thread of its own. Input is parsed in pieces of many records.

To change

- a format of input: ``parsers.py`` ``Parser``; with fields: ``structured_parsers.py`` ``JsonParser``, ``CsvParser``
- the summary, and what a failed record does: ``records.py`` ``ProduceRun``
- when transactions are committed: ``transactions.py`` ``TransactionalRun``
"""
