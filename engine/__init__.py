"""Everything Headroom computes: usable from Python and from a shell, knows nothing of the screens."""
