"""The doctor: reads a proxy's configuration and lists the parts that hurt LLM traffic, with remedies.

Everything here is pure: configuration goes in as plain data, findings come out. One folder is for Envoy, one
for proxies in front of it.
"""
