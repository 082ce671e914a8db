"""The result store: bytes under text keys, checked on every read. Knows no model and no task.

`store` is the interface, `opening` the rules for opening a folder, `disk` how a value lies there, `checking` verifies.
Results lie in `cache/data/` (git-ignored, always safe to delete).
"""

from cache.checking import Verified
from cache.disk import CorruptEntry
from cache.store import Store, open_store

__all__ = ["CorruptEntry", "Store", "Verified", "open_store"]
