"""``ottla acls``: lists, adds and removes rules, and explains who may do what.

``command.py`` has the commands; ``rules.py`` has rules in words and the answer to "who may do this?", without I/O.
The console's page of rules uses the latter as well.

To change

- how a rule is put in words: ``rules.py`` ``sentence``
- what ``explain`` answers: ``rules.py`` ``explain``
"""
