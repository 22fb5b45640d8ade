"""Shows a broker to Prometheus and to health checks: collectors, the text format, and the service over HTTP."""
