"""Cut a chain of layers into pipeline stages and choose the parallel degrees."""
