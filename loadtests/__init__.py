"""Load tests for a gateway on this machine, bounded in number and time, over loopback only."""
