"""Kafka's wire protocol without I/O: messages, record batches, errors."""
