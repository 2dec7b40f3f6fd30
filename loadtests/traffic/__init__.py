"""Traffic of many callers, whose every answer is held against what the policies promise."""
