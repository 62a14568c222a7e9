"""What replicas write down: at present recordings, which hold the history of one life each."""
