"""Ottla's broker: the daemon that serves Kafka's wire protocol from an on-disk log."""
