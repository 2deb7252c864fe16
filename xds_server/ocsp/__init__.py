"""OCSP staples of listeners' certificates, fetched ahead of need and kept on disk."""
