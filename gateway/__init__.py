"""The public API: evaluates scripts through the judges that its configuration names."""
