"""Published records of private training, beside ours with nothing tuned or with the search inside the budget."""
