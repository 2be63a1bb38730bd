"""The policy thread of a broker: it carries out what `controller/` and `coordinator/` decide."""
