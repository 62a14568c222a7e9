"""The availability manager's processes: an agent on each host, and the instances that tell them."""
