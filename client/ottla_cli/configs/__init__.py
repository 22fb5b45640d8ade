"""``ottla configs``: the configs of topics, brokers and groups, and what metrics clients push.

``command.py`` describes and alters configs; ``client_metrics.py`` has `ottla configs client-metrics`.

To change

- how configs are chosen and shown: ``command.py`` ``configs``
- subscriptions of clients' metrics: ``client_metrics.py`` ``client_metrics``
"""
