"""``ottla consume``: prints records of topics, from given positions, as a group's member, or as a share group's.

Read ``command.py`` first: the options; then ``print_run.py``, the loop that all kinds of reading share, with its
subclass in ``records.py`` that reads logs. Records are rendered many at once, never one by one.

To change

- a format of records: ``formatters.py`` ``make_formatter``
- what ``--from`` and ``--to`` take: ``log_positions.py`` ``LogPositionType``
- when a run ends and commits: ``records.py`` ``ConsumeRun``
- how output is written without holding the loop: ``output.py`` ``Output``
"""
