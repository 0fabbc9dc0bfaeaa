"""What is drawn: answers, the live panel, tables of figures."""
