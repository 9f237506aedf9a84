"""Models of other libraries as targets."""
