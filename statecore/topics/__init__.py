"""What is in the topics of Kafka brokers, for sources that read them."""
