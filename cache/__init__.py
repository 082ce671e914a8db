"""Result store: verified bytes under text keys.

`store`: the interface: get, put, delete, keys, size, verify, clear
`opening`: the rules for opening a folder
`files`: files read with a bound, and replaced whole
`typed_json`: JSON that others may have written, bounded and typed
`disk`: how a value lies there, never through pickle
`diskcache_internals`: the private names and the tables of diskcache
`checking`: every entry against its digest

Results lie in `cache/data/` (git-ignored) in a clone, in the user's cache folder where it is installed: always safe
to delete.
"""

from cache.checking import Verified
from cache.disk import CorruptEntry
from cache.store import Store, open_store

__all__ = ["CorruptEntry", "Store", "Verified", "open_store"]
