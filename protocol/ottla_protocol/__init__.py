"""Kafka's wire protocol, sans-IO: messages, record batches and their errors; no sockets, no files, no event loop."""
