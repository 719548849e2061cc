"""`neomx check`: reads MXNet scripts, without running them, and tells what neomx has of what they use."""
