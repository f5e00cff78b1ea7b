"""Files written whole or not at all, locked, and never over what a person wrote."""
