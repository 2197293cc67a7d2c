"""A search from its public design to what leaves it.

configuration: what is asked. design: everything that is fixed and charged before a record is read. guarantee: what is said of it.
secret and planning: everything random that is drawn before the first run, and must not leave; vault: where it is kept. lifecycle:
all of it in order, in a folder. paying: the ledger's charge. after_charge and runs: records, as populations. result: what leaves.
ending: what is erased.
"""
