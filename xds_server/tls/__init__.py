"""Certificates that xds_server uses or serves: secrets, tickets, OCSP staples."""
