"""What several APIs share, by subject."""
