"""Stand-ins for what a program calls: threads, clocks, sockets, files' times, signals."""
