"""Code that tests share: brokers in their own processes, clients, waiting."""
