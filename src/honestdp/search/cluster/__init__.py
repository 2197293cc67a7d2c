"""A search's populations as tasks of a Ray cluster, from the address to what comes back."""
