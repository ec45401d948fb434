"""What people write: tasks, entities, and what a running task can ask."""
