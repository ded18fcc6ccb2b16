#!/usr/bin/env python3
"""A whole agent for Cofferdam's stdio adapter: Python 3.9, standard library only. See docs/adapters.md."""
import base64, http.client, json, os, queue, sys, threading, urllib.error, urllib.request

requests = queue.Queue()  # what the worker says, but for a cancel


class Failed(Exception):
    """Ends the turn as an error with one of the codes that a program may use."""


def listen():
    for line in sys.stdin.buffer:  # until the worker closes it, which it does after a commit or an interrupt
        request = json.loads(line)
        if request["type"] == "cancel":
            os._exit(0)  # nothing was committed, so nothing has to be undone
        requests.put(request)


def say(**message):
    print(json.dumps(message), flush=True)


def emit(kind, **data):
    say(type="event", event={"type": kind, "data": data})


def ask(init, messages, message_id):
    """Streams one answer of the model: its text as events, and what it wants to call."""
    model, text, calls, stop = init["model"], "", {}, ""
    body = {"model": model["alias"], "stream": True, "messages": [{"role": "system", "content": init["prompt"]}] + messages}
    if init["tools"]:
        body["tools"] = [{"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]}}
                         for t in init["tools"]]
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + model["key"]}
    try:
        with urllib.request.urlopen(urllib.request.Request(model["base_url"] + "/chat/completions", json.dumps(body).encode(), headers)) as answer:
            for line in answer:
                for choice in json.loads(line[6:])["choices"] if line.startswith(b"data: {") else []:
                    stop, delta = choice.get("finish_reason") or stop, choice.get("delta", {})
                    piece = "".join(c for c in delta.get("content") or "" if c >= " " or c in "\t\r\n")
                    if piece and not text:
                        emit("text.started", message_id=message_id, role="assistant")
                    if piece:
                        emit("text.delta", message_id=message_id, delta=piece)
                    text += piece
                    for part in delta.get("tool_calls") or []:
                        call = calls.setdefault(part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                        call["id"] = part.get("id") or call["id"]
                        for key, value in part.get("function", {}).items():
                            call["function"][key] += value or ""
    except urllib.error.HTTPError as error:
        raise Failed({429: "rate_limited", 503: "model_unavailable"}.get(error.code, "model_failed")) from error
    except (OSError, http.client.HTTPException) as error:
        raise Failed("model_failed") from error
    if not stop:
        raise Failed("model_failed")  # the stream was cut off: half an answer is none
    if text:
        emit("text.finished", message_id=message_id)
    return text, list(calls.values()), stop


def call_tools(calls):
    """Makes brokered calls, all at once, and gives their messages. The worker itself tells of them in events."""
    for call in calls:
        say(type="tool_call", **call)
    return [{"role": "tool", "tool_call_id": r["tool_call_id"], "content": json.dumps(r.get("error") or r["result"])}
            for r in [requests.get() for _ in calls]]


def turn(init, run):
    messages = json.loads(base64.b64decode(run.get("state", "W10=")))
    if run["type"] == "turn":
        messages.append({"role": "user", "content": run["message"]})
    else:  # a person has decided on the calls that were asked about; the worker knows with which arguments
        tools = {a["tool_call_id"]: a["tool_name"] for a in run["interrupt"]["tool_approvals"]}
        allowed = [d["tool_call_id"] for d in run["decision"].get("tools", []) if d["decision"] != "reject"]
        messages += call_tools([{"tool_call_id": i, "tool_id": tools[i]} for i in allowed])
        messages += [{"role": "tool", "tool_call_id": i, "content": "A person did not allow this call."} for i in tools if i not in allowed]
    tools = {t["name"]: t for t in init["tools"]}
    for n in range(init["limits"]["model_calls"]):
        text, calls, stop = ask(init, messages, f"{run['run_id']}-{n}"[-128:])
        messages.append({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
        direct, asked = [], []  # a name that was not offered is for the worker to refuse
        for call_id, name, arguments in [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"] or "{}")) for c in calls]:
            tool = tools.get(name, {"id": name, "approval_required": False})
            (asked if tool["approval_required"] else direct).append({"tool_call_id": call_id, "tool_id": tool["id"], "arguments": arguments})
        messages += call_tools(direct)
        if asked or not calls:
            break
    state = base64.b64encode(json.dumps(messages).encode()).decode()
    say(type="interrupt", state=state, approvals=asked) if asked else say(type="commit", state=state, stop_reason=stop)


threading.Thread(target=listen).start()
say(type="ready", protocol=1)
try:
    turn(requests.get(), requests.get())
except Exception as failure:  # also a defect must not leave the worker waiting for the deadline
    say(type="error", code=str(failure) if isinstance(failure, Failed) else "internal")
