"""What is decided elsewhere is done here, on the policy thread."""
