"""The znode tree that holds a cluster's metadata: the contract, and the stores behind it."""
