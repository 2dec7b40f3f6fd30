"""The admin listener: metrics, probes, the admin API and the console, on a separate port."""
