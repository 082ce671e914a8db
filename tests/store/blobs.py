"""Blobs that show which they are."""

import random


def blob(number: int) -> bytes:
    """A blob of that number's own."""
    rng = random.Random(number)
    return number.to_bytes(4, "big") + rng.randbytes(rng.choice((300, 300, 40_000)))
