"""What runs inside the peers' own processes: one small file a peer, as its documentation says to write it."""
