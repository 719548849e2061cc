"""`mx.nd.sparse`."""
