"""Generated code of `proto/warmroute/v1`; `make proto` writes it and a test checks it for drift."""
