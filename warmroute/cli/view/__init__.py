"""What `warmroute top` and `warmroute explain` share: the admin API as values, and their looks."""
