"""What people see: tables on the console and charts."""
