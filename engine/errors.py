"""The engine's exceptions, and how one becomes a Failed event."""

import traceback

from .result import ErrorType, Failed


class EngineClosed(RuntimeError):
    """The engine was closed; it takes no more calls."""


class EngineDead(EngineClosed):
    """The device thread ended on an error that it cannot recover from; only a new engine helps."""


class RankLost(RuntimeError):
    """The rank that was asked is not there: it has ended, or another incarnation of it is not ready yet."""


class RankError(RuntimeError):
    """A method of a rank raised something that this process has no class for; the text begins with the class's name."""


class QueueFull(RuntimeError):
    """`max_waiting` requests wait already. Try again later."""


class ModelLoadError(RuntimeError):
    """The model could not be loaded; the message names the model, the cause and what to try."""


class RequestError(Exception):
    """An error that belongs to one request. Adapters raise its subclasses; the class decides the error type."""

    error_type: ErrorType = "internal"


class InvalidRequest(RequestError, ValueError):
    """The request can never run on this model."""

    error_type = "invalid_request"


class InvalidImage(RequestError, ValueError):
    """An input image cannot be used."""

    error_type = "invalid_image"


class ModelError(RequestError):
    """The model gave no usable output, for example a picture that is not finite."""

    error_type = "model_error"


class OutOfMemory(RequestError):
    """The device had no room for this many rows. Adapters translate the library's error into this one."""

    error_type = "out_of_memory"


class DeviceLost(Exception):
    """The device no longer works in this process. Raised by an adapter's `probe`; it ends the engine."""


class BatchAborted(BaseException):
    """Raised out of a step hook to stop a batch that nobody waits for. No Exception, so that no library keeps it."""


def failure(request_id: str, error: Exception) -> Failed:
    """The event that tells a request of its own error. What no adapter has classified counts as the model's."""
    error_type = error.error_type if isinstance(error, RequestError) else "model_error"
    message = str(error) or type(error).__name__
    text = None if isinstance(error, RequestError) else "".join(traceback.format_exception(error))
    return Failed(request_id, error_type, message, traceback=text)
