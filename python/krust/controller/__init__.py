"""Pure policy over the znode tree: who is here, which topics there are, who leads, what holds."""
