"""The invariant manifold's coordinates: named directions, effective matrices, projection."""
