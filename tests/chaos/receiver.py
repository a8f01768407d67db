"""A web server for webhooks that fails the first delivery of some jobs: with 500, by hanging up, or by being slow."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Told:
    """A delivery that arrived, whatever was answered."""

    message_id: str
    job_id: str
    status: str
    was_taken: bool


class Receiver:
    def __init__(self, seed: int) -> None:
        self.told: list[Told] = []
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                number = int(self.path.rpartition("/")[2])
                mood = (number * 7 + seed) % 6 if receiver._is_first(body["data"]["id"]) else 3
                was_taken = mood > 1
                receiver._note(Told(self.headers["webhook-id"], body["data"]["id"], body["data"]["status"], was_taken))
                if mood == 1:
                    self.close_connection = True
                    return
                if mood == 2:
                    time.sleep(2)
                self.send_response(204 if was_taken else 500)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True).start()

    def _is_first(self, job_id: str) -> bool:
        with self._lock:
            is_first = job_id not in self._seen
            self._seen.add(job_id)
            return is_first

    def _note(self, told: Told) -> None:
        with self._lock:
            self.told.append(told)

    def taken(self) -> set[str]:
        """Ids of the jobs whose end it has acknowledged."""
        with self._lock:
            return {told.job_id for told in self.told if told.was_taken}

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
