"""SASL mechanisms without sockets: the messages and states of both sides, and the errors for failures."""
