"""Policy files: reads YAML into one `gateway.domain.policy.Policy`, or reports all faults."""
