"""A search from its public design to what leaves it.

tune: the function that users call. request and configuration: its arguments, checked. space and design: everything that is
fixed and charged before a record is read. guarantee: the statement about it. rehearsal, planning and dry_run: the search on
synthetic records. secret: everything random that is drawn before the first run, and must not leave; vault: where it is kept.
lifecycle: the order of all of it, with the charge and the end; folder: where on the disk. runs: the trainings on the records, as
populations; cluster: the same on other machines; failures: how they fail. tune_result: what leaves.
"""
