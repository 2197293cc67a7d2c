"""Chromium, driven through chromedriver by the WebDriver protocol with the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """One browser window. Sizes are set without a window manager, so that a phone's width is possible."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        assert DRIVER is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        quiet = subprocess.DEVNULL
        environment = {**os.environ, "HOME": str(profile)}
        self.driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=quiet, stderr=quiet, env=environment)
        self._wait()
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile / 'profile'}"]}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        self.session = self._call("POST", "/session", wanted)["sessionId"]

    def _wait(self) -> None:
        for _ in range(2400):
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise TimeoutError("chromedriver does not answer")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["value"]

    def cdp(self, command: str, **parameters: Any) -> Any:
        path = f"/session/{self.session}/goog/cdp/execute"
        return self._call("POST", path, {"cmd": command, "params": parameters})

    def open(self, file: Path, *, width: int, scheme: str) -> None:
        """Shows a file at a width, with the reader's wish for a light or a dark page."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        phone = width < 600
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=phone)
        self._call("POST", f"/session/{self.session}/url", {"url": file.as_uri()})

    def ask(self, script: str) -> Any:
        return self._call("POST", f"/session/{self.session}/execute/sync", {"script": script, "args": []})

    def shot(self) -> np.ndarray:
        """The whole page as [height, width, 3] bytes."""
        taken = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, format="png", clip=self._whole())
        with Image.open(BytesIO(base64.b64decode(taken["data"]))) as image:
            return np.asarray(image.convert("RGB"))

    def _whole(self) -> dict[str, float]:
        size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def close(self) -> None:
        try:
            self._call("DELETE", f"/session/{self.session}")
        finally:
            self.driver.terminate()
            self.driver.wait(timeout=120)
