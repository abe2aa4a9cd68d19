# SPDX-License-Identifier: Apache-2.0
"""`dpfedge serve`: a package in, its HTTP and WebSocket faces on this machine until the process is told to end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import grp
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from dpfedge.cli.observing import add_observe_arguments, observing
from dpfedge.cli.trusting import add_trust_arguments, trust_options
from dpfedge.errors import UsageError
from dpfedge.pipeline.prepare import Prepared, prepare
from dpfedge.serve.ending import die_at_once
from dpfedge.serve.sockets import default_socket_path, listen_tcp, listen_unix, native_path

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from dpfedge.backend.api import Backend
    from dpfedge.pipeline.observer import Observe
    from dpfedge.pipeline.plan import Plan
    from dpfedge.routing.log import RouteLog
    from dpfedge.runtime import AsyncRuntime
    from dpfedge.serve.provider import Provider

NAME = "serve"
HELP = """serve a package over HTTP and WebSocket, with OpenAI's endpoints

examples:
  dpfedge serve build/voice.dpfbin --port 8080
  dpfedge serve voice     the installed package of this name; `dpfedge install --activate` replaces it while it runs
  curl http://127.0.0.1:8080/v1/models"""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_END_LIMIT_S = 4.6  # after this a server that was told to end is killed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("package", type=Path, help="a .dpfbin file, or the name of an installed package")
    parser.add_argument("--board", default="auto", help="the board to bind to (default: the one this machine is)")
    parser.add_argument("--host", default="127.0.0.1", help="loopback address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="TCP port; 0 takes a free one (default: %(default)s)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--socket", type=Path, metavar="PATH", help="Unix socket (default: in $XDG_RUNTIME_DIR/dpfedge)")
    where.add_argument("--no-socket", action="store_true", help="no Unix sockets: neither HTTP's nor libdpfedge's")
    group = "a group whose users may use libdpfedge, too (its socket is .native beside the Unix socket)"
    parser.add_argument("--native-group", metavar="NAME", help=group)
    add_trust_arguments(parser)
    add_observe_arguments(parser)
    parser.add_argument(
        "--route-log", type=Path, metavar="FILE", help="write each decision; `dpfedge route replay` proves it"
    )
    parser.add_argument(
        "--fingerprint", choices=("anonymous", "plain", "off"), default="anonymous",
        help="what /v1/health-map tells of the hardware: another digest each day, always the same, or none",
    )  # fmt: skip
    parser.add_argument(
        "--check",
        choices=("fast", "full"),
        default="full",
        help="full: every byte, weights beside the start; fast: no weights",
    )
    parser.add_argument("--json", action="store_true", help="write what happens as JSON lines to stdout")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; 0 after an orderly end."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="dpfedge: %(levelname)s %(name)s: %(message)s")
    _check_address(args)
    # before the port and the web server: a package that does not fit this machine is refused at once
    prepared = prepare(args.package, board=args.board, check=args.check, own=True, **trust_options(args))
    with contextlib.closing(prepared):
        _listen(args, prepared)
    return 0


def _listen(args: argparse.Namespace, prepared: Prepared) -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _leave))
        tcp = listen_tcp(args.host, args.port)
        stack.callback(tcp.close)
        port = tcp.getsockname()[1]
        path = None if args.no_socket else args.socket or default_socket_path(port)
        observe = stack.enter_context(observing(args))
        sockets, native = [tcp], None
        if path is not None:
            sockets.append(stack.enter_context(listen_unix(path)))
            stack.callback(path.unlink, missing_ok=True)
            native = _Native(native_path(path), _group(args.native_group), stack)
        say = _Say(args.json)
        shown = f"[{args.host}]" if ":" in args.host else args.host
        say("listening", http=f"http://{shown}:{port}", socket=path and str(path), native=native and str(native.path))
        launch = _announce(args, prepared, path, stack, observe)
        asyncio.run(_serve(prepared, sockets, say, launch, observe, native, _Routes(args, port)))
    say("stopped")


def _leave(number: int, frame: object) -> None:
    """SIGTERM before the event loop takes it: what was made so far, sockets above all, is taken away."""
    raise SystemExit(0)


class _Native:
    """The socket of the native face, and whose users may connect."""

    def __init__(self, path: Path, group: int | None, stack: contextlib.ExitStack) -> None:
        self.path, self.group = path, group
        self.sock = stack.enter_context(listen_unix(path, kind=socket.SOCK_SEQPACKET, group=group))
        stack.callback(path.unlink, missing_ok=True)


class _Routes:
    """Looks after the devices behind a runtime that is warm, until it is closed."""

    def __init__(self, args: argparse.Namespace, port: int) -> None:
        self._privacy, self._port, self._stack = args.fingerprint, port, contextlib.ExitStack()
        self._log: RouteLog | None = None
        if args.route_log is not None:  # one that cannot be written is told now, not when all is warm
            from dpfedge.routing.log import RouteLog

            self._log = self._stack.enter_context(RouteLog(args.route_log))

    async def begin(self, provider: Provider, app: Starlette) -> dict[str, Any]:
        """Sample, publish, and answer for it, beside the event loop; what there is to say."""
        from dpfedge.backend.registry import Registry
        from dpfedge.routing.devices import told_facts
        from dpfedge.routing.fingerprint import Fingerprints, Privacy
        from dpfedge.routing.publication import server_path
        from dpfedge.serve.instances import Instances

        def make() -> Instances:
            return Instances(*_placed(provider), server_path(self._port), log=self._log)

        instances = provider.instances = await asyncio.to_thread(make)
        self._stack.callback(instances.close)
        loop = asyncio.get_running_loop()

        one_by_one = self._stack.enter_context(ThreadPoolExecutor(1, "follow"))  # the last replacement counts

        def follow() -> None:
            loop.run_in_executor(one_by_one, instances.follow, *_placed(provider)).add_done_callback(_tell_failure)

        provider.replaced.add(follow)
        if self._privacy != "off":
            prints = Fingerprints(Privacy(self._privacy), told=lambda: told_facts(Registry.load()))
            app.state.fingerprints = self._stack.enter_context(prints)
        names, table = list(instances.router.health_map()), instances.path
        return {"instances": ", ".join(names), "table": table and str(table), "problem": instances.problem}

    def close(self) -> None:
        """Look no more."""
        self._stack.close()


def _tell_failure(done: asyncio.Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        logging.getLogger(__name__).error("the devices of the new package are not looked at: %s", error)


def _placed(provider: Provider) -> tuple[Plan, Mapping[str, Backend]]:
    plan = cast("AsyncRuntime", provider.runtime).plan
    assert plan.bound is not None  # what is served is a package
    return plan, plan.bound.backends


def _group(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise UsageError("no such group", where="--native-group", found=name, remedy="see /etc/group") from None


Launch = Callable[[str], Awaitable[Any]]


def _announce(
    args: argparse.Namespace,
    prepared: Prepared,
    path: Path | None,
    stack: contextlib.ExitStack,
    observe: Observe | None,
) -> Launch | None:
    """Note in the store that this process serves a package of it; what opens another one. None for a file."""
    installed, root = prepared.located.installed, prepared.located.root
    if installed is None or root is None:
        return None
    from dpfedge.store.find import by_id
    from dpfedge.store.located import Located
    from dpfedge.store.places import Places
    from dpfedge.store.serving import announce

    places, name = Places(root), installed.name
    note = announce(places, name, path)
    if note is None:
        text = f"no note can be written in {places.serving} or in XDG_RUNTIME_DIR: `install --activate` finds no server"
        print(f"dpfedge: warning: {text}", file=sys.stderr, flush=True)
    else:
        stack.callback(note.unlink, missing_ok=True)

    async def launch(id: str) -> Any:
        from dpfedge.runtime import AsyncRuntime

        other = by_id(places, id)
        if other.name != name:
            raise UsageError("another name is served here", where="server", found=other.name, allowed=name)
        located = Located(other.path, other, root)
        options = {"board": args.board, "check": args.check, **trust_options(args)}
        return await AsyncRuntime.launch(located, observe=observe, **options)

    return launch


def _check_address(args: argparse.Namespace) -> None:
    if not 0 <= args.port <= 65535:
        raise UsageError("no such port", where="--port", found=args.port, allowed="0 to 65535")
    if args.host == "localhost":
        args.host = "127.0.0.1"
    if args.host != "::1" and not _is_ipv4_loopback(args.host):
        raise UsageError(
            "only this machine may connect", where="--host", found=args.host, allowed="127.0.0.1, ::1, localhost",
            remedy="this server knows no tokens: forward a port over ssh, or put a proxy with TLS before it",
        )  # fmt: skip


def _is_ipv4_loopback(host: str) -> bool:
    try:
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    except OSError:
        return False


class _Say:
    """Tells what happens: people on stderr, programs as JSON lines on stdout.

    A server outlives who reads it: a pipe that was closed gets no more, a disk that is full gets it when it can.
    """

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def __call__(self, event: str, **fields: Any) -> None:
        if self._as_json:
            _write(sys.stdout, json.dumps({"event": event, **fields}))
        detail = " ".join(f"{key}={value}" for key, value in fields.items() if value is not None)
        _write(sys.stderr, f"dpfedge: {event} {detail}".rstrip())


def _write(stream: TextIO, line: str) -> None:
    try:
        print(line, file=stream, flush=True)
    except BrokenPipeError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
    except OSError:  # what could not be written is tried again with the next line
        pass


async def _serve(
    prepared: Prepared,
    sockets: list[socket.socket],
    say: _Say,
    launch: Launch | None = None,
    observe: Observe | None = None,
    native: _Native | None = None,
    routes: _Routes | None = None,
) -> None:
    from dpfedge.runtime import AsyncRuntime
    from dpfedge.serve.provider import Provider

    told = _told_to_end()
    provider = Provider(prepared.bound.package.manifest.name, lambda: AsyncRuntime.launch(prepared, observe=observe))
    provider.replaced.add(lambda: say("switched", package=provider.name))
    opening = provider.start()
    await asyncio.sleep(0)  # the stages begin to load before this process imports its web server

    from dpfedge.serve.app import create_app
    from dpfedge.serve.server import Server
    from dpfedge.serve.switcher import Switcher

    installed = prepared.located.installed
    switcher = Switcher(provider, launch, installed.id) if launch is not None and installed is not None else None
    app = create_app(provider, switcher)
    server = Server(app, provider)
    face = None
    if native is not None:
        from dpfedge.serve.native.face import NativeFace

        face = NativeFace(provider, app.state.metrics, native.sock, group=native.group)
        face.start()
        app.state.native = face
    serving = asyncio.ensure_future(server.serve(sockets))
    ending = asyncio.ensure_future(told.wait())
    try:
        await asyncio.wait({opening, serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        if opening.done() and not told.is_set():  # stages that were told to end as well are no reason
            opening.result()  # raises what kept the runtime from opening
            routed = None if routes is None else await routes.begin(provider, app)
            say("ready", package=provider.name, ready_ms=round((provider.ready_ns or 0) / 1e6, 1))
            if routed is not None:
                say("routing", **routed)
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        server.should_exit = True
        await serving
        if face is not None:
            await face.close()
        if switcher is not None:
            await switcher.close()
        if routes is not None:
            await asyncio.to_thread(routes.close)
        await provider.close()


def _told_to_end() -> asyncio.Event:
    """Set by the first signal; the second signal, or an end that takes too long, kills everything."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def end() -> None:
        if told.is_set():
            die_at_once(1)
        told.set()
        loop.call_later(_END_LIMIT_S, die_at_once, 1)

    for number in _SIGNALS:
        loop.add_signal_handler(number, end)
    return told
