"""What the kernel does for the daemons: filters on their sockets, exporters shared out among them, copied packets."""
