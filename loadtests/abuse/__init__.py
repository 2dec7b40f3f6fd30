"""Clients that mean harm, slow ones or floods, and a healthy one to see what they do to it."""
