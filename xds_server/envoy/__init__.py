"""From settings to Envoy's configuration: clusters, routes, listeners."""
