"""What couriers deliver, how quickly, and what it costs: `python -m loadtests.deliver --help`."""
