"""Shows a broker to Prometheus and to health checks: collectors, the text format, and the service over HTTP.

To change

- what /metrics shows: ``metrics/traffic.py``, ``metrics/state.py``, ``metrics/partitions.py``, counted in
  ``counters.py``; the text: ``metrics/exposition.py``; whether a broker is ready: ``metrics/health.py`` ``problems``
- how a group's lag is sampled and kept: ``metrics/lag_history.py`` ``LagHistory``; the slots, and what a reader makes
  of them: ``ottla_protocol/group_lag.py``; shown by ``metrics/lag_page.py`` ``lag_page``,
  ``ottla_cli/groups/lag_history.py`` ``show_history``
- the metric of open transactions: ``metrics/state.py``, ottla_transactional_ids
"""
