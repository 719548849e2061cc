"""The commands `neomx convert` and `neomx inspect`: conversion of checkpoints and inspection of files."""
