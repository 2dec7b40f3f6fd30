"""Warnings of limits that are nearly used up."""
