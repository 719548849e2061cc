"""Checkpoints to and from other worlds: the commands `neomx convert` and `neomx inspect`, and what they are made of."""
