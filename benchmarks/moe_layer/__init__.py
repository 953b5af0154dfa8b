"""The routed experts of one layer on the CPU against FreeToken's executor and kt-kernel."""
