"""Evaluates policies: read the figures, ask the policy, record the decision."""
