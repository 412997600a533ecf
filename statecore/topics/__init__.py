"""Offsets, lag and losses of Kafka topics, for sources that read them."""
