"""A policy at work: read the figures, ask the policy, record the decision."""
