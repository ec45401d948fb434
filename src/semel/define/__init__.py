"""What people write: tasks, and what a running task can ask."""
