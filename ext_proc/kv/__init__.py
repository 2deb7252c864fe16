"""Engines' KV-cache events: which tokens each engine's cache contains, published by the engines themselves.

`events` decodes, `sequence` orders, `chain` makes the keys of prefixes, `blocks` is the index, `tracker`
joins these for one publisher, `view` answers for the fleet, `zmtp` reads the wire: all pure. `subscriber` and
`connection` do the I/O, `tokens` makes token ids of texts, `lookup` answers routing. Only `tokens` needs the
extra `kv-events`.
"""
