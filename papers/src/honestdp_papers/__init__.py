"""Papers, reproduced: one package a paper, one function a figure or table, its claims beside it.

Repeats and curves over test data in here evaluate a reproduction on public data. No budget covers them: a practitioner who
looked at them would have to pay for them.
"""
