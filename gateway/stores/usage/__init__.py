"""Usage: requests by key, route and outcome, written once a second and read by bucket."""
