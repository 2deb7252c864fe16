"""GPUs as the agent reads them: values, faults and their wire format."""
