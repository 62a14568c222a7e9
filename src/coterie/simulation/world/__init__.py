"""The one simulated world: virtual time, a network, and machines with disks and residents."""
