"""Tables: columns that are declared, rows that are encoded by what was declared, and schema files."""
