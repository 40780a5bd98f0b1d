"""In a pseudo-terminal the progress line is never wider than the window, also after a resize, and disappears at the
end. Without a terminal there is no progress line."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
import unittest

from command import COMMAND, DATA, MPIRUN, SLOWDOWN, aloni


STEPS = str(int(200 / SLOWDOWN))  # about half a second


def set_width(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


class Terminal:
    """A program in a terminal window of `columns` columns."""

    def __init__(self, arguments, columns):
        self.ready, go = os.pipe()
        self.text, self.code = "", None
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.close(go)
            os.read(self.ready, 1)  # waits until the window has its width
            os.execvp(arguments[0], arguments)
        os.close(self.ready)
        set_width(self.terminal, columns)
        os.close(go)

    def read(self, seconds, until=lambda text: False):
        """Reads output of the program until `until` holds, the program ends, or `seconds` have passed."""
        end = time.monotonic() + seconds * SLOWDOWN
        while self.code is None and time.monotonic() < end and not until(self.text):
            if not select.select([self.terminal], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(self.terminal, 65536)
            except OSError:  # the program has closed its side
                piece = b""
            if not piece:
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                os.close(self.terminal)
            self.text += piece.decode(errors="replace")

    def end(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGTERM)
            self.read(10)


def drawn(text):
    """The pieces of text between carriage returns and line ends, without escape sequences."""
    pieces = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", p) for p in re.split(r"[\r\n]", text)]
    return [p for p in pieces if p.strip()]


def progress_lines(text):
    return [p for p in drawn(text) if re.match(r"\[[#.]+\]|\s*\d+ %", p)]


class ProgressLine(unittest.TestCase):
    def start(self, *arguments, columns, launcher=()):
        terminal = Terminal([*launcher, COMMAND, "train", "--data", DATA, *arguments], columns)
        self.addCleanup(terminal.end)
        return terminal

    def test_fits_the_window_and_disappears_at_the_end(self):
        for columns in (100, 40):
            window = self.start("--steps", STEPS, columns=columns)
            window.read(60)
            self.assertEqual(window.code, 0, window.text)
            lines = progress_lines(window.text)
            self.assertGreater(len(lines), 0, window.text)
            self.assertLess(max(len(line) for line in lines), columns)
            # Each line is erased before the next output: results start at the left margin of an empty line.
            self.assertRegex(window.text, r"\r\x1b\[Kepoch 1/")
            self.assertNotRegex(window.text.split("speed ")[-1], r"\x1b")

    def test_narrows_with_the_window(self):
        window = self.start("--steps", "1000000", columns=90)
        window.read(60, until=lambda text: len(progress_lines(text)) >= 3)
        self.assertGreater(max(len(line) for line in progress_lines(window.text)), 40)
        set_width(window.terminal, 30)
        window.read(1)  # output from before the resize
        before = len(window.text)
        window.read(60, until=lambda text: len(progress_lines(text[before:])) >= 4)
        lines = progress_lines(window.text[before:])[1:]  # the beginning of the first may be missing
        self.assertGreater(len(lines), 2, window.text)
        self.assertLess(max(len(line) for line in lines), 30)

    def test_fits_the_window_under_the_launcher(self):
        # The launcher forwards stdout and stderr in any order: a result may arrive before the line is erased. So stdout
        # is left out.
        launcher = ["sh", "-c", 'exec "$0" "$@" >/dev/null', MPIRUN, "-n", "2"]
        window = self.start("--progress", "line", "--steps", STEPS, "--strategy", "n2", columns=50, launcher=launcher)
        window.read(60)
        self.assertEqual(window.code, 0, window.text)
        lines = progress_lines(window.text)
        self.assertGreater(len(lines), 0, window.text)
        self.assertLess(max(len(line) for line in lines), 50)

    def test_draws_nothing_without_a_terminal(self):
        for ranks in (0, 2):
            result = aloni("train", "--data", DATA, "--steps", STEPS, ranks=ranks)
            self.assertEqual(result.code, 0, result.err)
            self.assertNotIn("\r", result.err)
            self.assertNotIn("\x1b", result.err + result.out)
            self.assertLessEqual(len(result.own_lines()), 1 + result.seconds / 10)


if __name__ == "__main__":
    unittest.main()
