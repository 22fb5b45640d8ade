"""Kafka's wire protocol, sans-IO: messages, record batches, errors; no sockets, no files, no event loop."""
