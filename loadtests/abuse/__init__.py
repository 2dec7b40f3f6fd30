"""Attacking clients (slow ones and floods), and a normal client that measures their effect."""
