"""The agent next to the engines: NVML's readings of a node's GPUs, as Prometheus text and as reports."""
