"""What both services mean by an endpoint: endpoint, load, settings, names shared with Envoy, serving."""
