"""What Headroom's measurements cost against the usual way, on one machine: `make bench`. Nothing timed is asserted."""
