"""What the benchmark of throughput is made of."""
