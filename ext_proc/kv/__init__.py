"""Engines' KV-cache events: who holds which tokens, as the engines themselves tell it.

`events` decodes, `sequence` orders, `chain` keys prefixes, `blocks` holds them, `tracker` joins these for one
publisher, `view` answers for the fleet: all pure. `subscriber` does the I/O, `tokens` makes token ids of
prompts, `lookup` is what routing asks. Only `subscriber` and `tokens` need the extra `kv-events`.
"""
