"""The datasets that honestdp knows by name, one module each."""
