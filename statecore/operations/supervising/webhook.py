"""Posts messages to a webhook as ``{"text": …}``, the JSON of chat webhooks."""

from __future__ import annotations

from dataclasses import dataclass, field

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from statecore.errors import ConfigurationError
from statecore.redaction import redacted

_TIMEOUT_S = 10.0
_ATTEMPTS = 3
_RETRY_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook.

    Attributes:
        url: Its address: a secret (knowing it is enough to post), so never log it.
        named: How messages to people name it.
        remedy: Where its address can be corrected.

    """

    url: str = field(repr=False)
    named: str
    remedy: str

    def post(self, text: str) -> None:
        """Post a message, without what looks like a secret; repeat it when the network fails.

        Raises:
            ConfigurationError: The webhook does not accept the message.

        """
        attempts = Retrying(
            retry=retry_if_exception_type(httpx.TransportError),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_fixed(_RETRY_PAUSE_S),
            reraise=True,
        )
        try:
            response = attempts(httpx.post, self.url, json={"text": redacted(text)}, timeout=_TIMEOUT_S)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # Leave out the error's message: it may contain the secret address.
            raise self._undelivered(type(error).__name__) from None
        if response.is_error:
            raise self._undelivered(f"the status {response.status_code}")

    def _undelivered(self, found: str) -> ConfigurationError:
        return ConfigurationError(
            f"found {found} when posting to the webhook of {self.named}; expected the message to be accepted; "
            f"correct the address, {self.remedy}"
        )
