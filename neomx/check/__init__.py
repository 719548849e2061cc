"""`neomx check`: reads MXNet scripts without running them, and reports which of the names they use neomx supports."""
