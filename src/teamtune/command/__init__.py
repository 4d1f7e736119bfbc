"""The command: configuration files and options, merged, checked and run."""
