"""Reports for people: tables of the console, charts, and the HTML page of a search or a training."""
