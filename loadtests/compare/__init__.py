"""What a request costs here and at the gateway's peers, measured in turns on one machine."""
