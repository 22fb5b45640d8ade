"""What tests share: a broker in a process of its own."""
