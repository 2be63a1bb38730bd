"""Groups of the consumer protocol (KIP-848): the broker assigns, members reconcile one by one."""
