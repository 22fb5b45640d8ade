"""What several commands share: options, output, errors, and how values are written and read.

Read ``terminal.py`` first: a command's options, its Console and how its errors end it; then ``admin.py``, which
commands on topics, groups and configs share; the rest as you need it. Nothing here imports a command. rich is
imported only where output goes to a terminal (``rich_output.py``), and ottla_client's classes only when a command
runs, because completion and ``--help`` import these modules too.

To change

- the options of all commands: ``terminal.py`` ``options``; what becomes of `-X`: ``client_options.py``
  ``ClientOptions``
- what an error looks like, and the exit codes: ``terminal.py`` ``one_line_errors``
- how long a command may take to end after Ctrl-C: ``ending.py`` ``Ending``
- a table's look: ``tables.py`` ``plain_table`` in a pipe, ``rich_output.py`` ``draw_table`` at a terminal
- what commands show of findings: ``findings.py`` ``report``
- which topics a command takes, and what it says of unknown ones: ``topic_checks.py`` ``require_topics``
- what a shell completes: ``completion.py`` ``completing``
"""
