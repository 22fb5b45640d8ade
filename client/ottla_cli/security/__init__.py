"""``ottla security``: checks how a cluster is secured, and makes what a secured one for trials needs.

``command.py`` gathers; ``probe.py`` tries what a stranger could do with a listener; ``checks.py`` is pure functions
from both to findings. ``cluster/doctor`` uses them as well.

To change

- what `ottla security check` finds: ``checks.py`` ``CHECKS``; what it tries: ``probe.py`` ``Prober``
- what is said of a certificate's dates: ``certificates.py`` ``certificate_findings``
- what certificates for trials have: ``trial_files.py`` ``make_files``
"""
