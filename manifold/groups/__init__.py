"""Groups as generators: what commutes with them, and how much of it there is."""
