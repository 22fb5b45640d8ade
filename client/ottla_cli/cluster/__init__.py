"""``ottla cluster``: the state of a cluster, the placement of its partitions, elections, and its doctor.

Read ``command.py`` first, with ``state.py``: what is gathered for `describe`, which the console shows too.
``reassign.py`` runs a plan that ``reassignment_plan.py`` makes, without I/O. ``doctor/`` is a package of its own.

To change

- what counts as a problem of a partition: ``state.py`` ``problem_of``
- where partitions are placed: ``reassignment_plan.py`` ``balanced``, ``drained``
- the format of plans in files: ``reassignment_files.py`` ``read_plan``
- how moves are throttled: ``throttle.py`` ``throttle``
"""
