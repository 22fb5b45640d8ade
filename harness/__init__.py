"""Processes that tests, benchmarks and demos run on this machine: brokers, ZooKeeper, programs from Maven Central."""
