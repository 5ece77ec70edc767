"""From the events of a job to the chunks a client reads."""
