"""GET from engines and exporters over HTTP/1.1; answers are bounded in bytes, work and time."""
