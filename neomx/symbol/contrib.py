"""`mx.sym.contrib`: the ops called `_contrib_...` in the table."""
