"""The processes of a gateway: the supervisor, its workers, their sockets, files and take-over."""
