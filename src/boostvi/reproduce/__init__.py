"""`boostvi reproduce`: every table and figure of the paper from one command each, published beside measured."""
