"""Seeds that follow from what they are for, never from the order of calls."""

import hashlib


def derive_seed(*parts: object) -> int:
    """A seed in [0, 2**48) from what identifies a draw; equal parts give equal seeds."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")
