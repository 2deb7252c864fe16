"""A gRPC server over HTTP/2 for services whose few methods are called very often by few clients."""
