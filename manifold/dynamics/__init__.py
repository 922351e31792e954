"""The reduced field on the manifold, its fixed points and their branches."""
