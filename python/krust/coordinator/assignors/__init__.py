"""Who reads which partition: the contract (`spec`), the built-in ways, and how others are found."""
