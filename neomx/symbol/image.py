"""`mx.sym.image`: the ops called `_image_...` in the table."""
