"""Security that a developer gets in one word: `krust dev --secure`, `Broker(secure=True)`."""
