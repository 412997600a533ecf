"""Compares the policy with its peers on simulated jobs: ``python -m benchmarks.policies``, or ``make policies``.

``shapes.py`` lists the jobs and what is right for each, ``goals.py`` judges, ``simulations.py`` runs all pairs of shape
and policy, ``report.py`` and ``picture.py`` show them. ``traces/`` holds recorded arrivals.
"""
