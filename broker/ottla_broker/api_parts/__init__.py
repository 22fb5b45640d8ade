"""What several APIs share, by subject.

To change

- which metrics clients push, and what is kept of them: ``api_parts/client_telemetry.py`` ``ClientTelemetry``; OTLP:
  ``ottla_protocol/otlp.py``; shown by ``metrics/clients.py`` ``ClientCollector``
"""
