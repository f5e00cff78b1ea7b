"""Another machine made a node from here, over ssh: what it needs goes there, it joins, a job proves it."""
