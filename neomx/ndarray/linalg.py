"""`mx.nd.linalg`: the ops called `_linalg_...` in the table."""
