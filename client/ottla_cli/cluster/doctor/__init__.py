"""``ottla cluster doctor``: gathers what somebody who knows Kafka would look at, and checks it.

Read ``gathered.py`` first: the facts; then ``command.py``, which gathers them and shows findings, then ``checks.py``
and ``group_checks.py``: pure functions from the facts to findings. ``broker_pages.py`` asks brokers' metrics
listeners for what Kafka's protocol doesn't say; ``descriptors.py`` and ``share_deliveries.py`` read two of their
pages. The console runs the same checks.

To change

- what the doctor finds: a function in ``checks.py``, and its line in ``findings_of``; of groups: ``group_checks.py``
- what it asks brokers for: ``command.py`` ``gather``
- what is known of share groups' deliveries: ``share_deliveries.py`` ``Deliveries``, asked by ``broker_pages.py``
  ``ask``
"""
