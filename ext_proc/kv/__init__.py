"""Engines' KV-cache events: who holds which tokens, as the engines themselves tell it.

`events` decodes, `sequence` orders, `chain` keys prefixes, `blocks` holds them, `tracker` joins these for one
publisher, `view` answers for the fleet, `zmtp` reads the wire: all pure. `subscriber` and `connection` do the
I/O, `tokens` makes token ids of prompts, `lookup` is what routing asks. Only `tokens` needs the extra
`kv-events`.
"""
