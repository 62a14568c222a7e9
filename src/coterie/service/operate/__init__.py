"""What operators use: founding, supervising, watching and steering the processes of a group."""
