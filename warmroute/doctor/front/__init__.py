"""nginx, Traefik and Kong in front of an Envoy: one reader each, one model, and the rules about it."""
