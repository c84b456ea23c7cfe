"""The way through Kafka: relay, topics, workers."""
