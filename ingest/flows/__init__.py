"""From records to flows with names: groups, planes, services, labels."""
