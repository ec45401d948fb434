"""What people write."""
