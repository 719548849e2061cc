"""`neomx doctor`: checks of this machine and of its connections to other machines. One file for each kind of check."""
