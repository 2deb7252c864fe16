"""Attacks on Warmroute's doors, one module a door: each is bounded in bytes and in time.

Each module has `attack(address, ...)`, which returns how many bytes it could send. They run against loopback
addresses and Unix sockets only.
"""
