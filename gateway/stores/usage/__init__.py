"""Usage: requests by key, route and outcome, written every second or so and read by bucket."""
