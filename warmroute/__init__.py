"""The command `warmroute` and what it brings: demo, doctor, GPU agent, simulated engine."""
