"""Training scripts to collect traces of. They are run, never imported: they need PyTorch."""
