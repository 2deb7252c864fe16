"""The doctor: reads a proxy's configuration and names what in it will hurt LLM traffic, and how to mend it.

Everything here is pure: configuration goes in as plain data, findings come out. One folder a proxy.
"""
