"""`mx.nd.random`."""
