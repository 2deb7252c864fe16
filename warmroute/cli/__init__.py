"""The command warmroute, one file a verb."""
