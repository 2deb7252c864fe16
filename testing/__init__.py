"""Certificates, servers and clients for tests and benches."""
