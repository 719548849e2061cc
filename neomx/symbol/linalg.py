"""`mx.sym.linalg`: the ops called `_linalg_...` in the table."""
