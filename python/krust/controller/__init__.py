"""Pure decisions over the znode tree: live brokers, topics, leaders, settings and quotas."""
