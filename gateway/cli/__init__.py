"""The command `gateway`: one module for each subcommand, and what several of them share."""
