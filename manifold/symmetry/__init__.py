"""Do gradients, data and training stay on the manifold?"""
