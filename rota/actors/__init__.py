"""The shells that move facts: actors, the journal, and the shard that they make up."""
