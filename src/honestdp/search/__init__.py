"""A search from its public design to what leaves it.

design: everything that is fixed and charged before a record is read. secret: everything random that is drawn before the first
run, and must not leave. execution: the runs, as populations. leaving: what is written when the search is over. carrying: all of
it in order, from the ledger's charge on. guarantee and public: what is said of it.
"""
