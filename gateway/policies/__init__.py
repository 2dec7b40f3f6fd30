"""Policy files: YAML in, one immutable `gateway.domain.policy.Policy` out, or every fault."""
