"""A suite that judges tuning-free rules: settings drawn by a seed, and the best of 48 DPSGD candidates in each."""
