"""Sessions of management: who opened SSH, NETCONF, IPMI and the like to what."""
