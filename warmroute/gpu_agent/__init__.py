"""The agent beside the engines: what NVML knows of a node's GPUs, as Prometheus text and as reports."""
