"""The demo: real flights, an outage, a backlog, two rescales, and a verdict on the results."""
