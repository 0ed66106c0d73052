"""What RunService is made of."""
