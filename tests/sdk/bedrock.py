"""Amazon Bedrock's Converse API on loopback, with the scripted model behind it.

Strict by Converse's own rules: roles alternate and begin with the user, each call is answered in the next message and
nothing else is, texts are not blank, tools are declared, the request is signed. What passes is asked of the scripted
model in Messages, which is what the models of Anthropic on Bedrock speak inside, so one script holds for all providers.
A stream is sent in AWS's frames, cut where no frame ends.
"""

import base64
import contextlib
import http.client
import http.server
import json
import re
import struct
import threading
import urllib.parse
import zlib

ACCESS_KEY = "AKIAKNACKTEST0000000"
# Signed, and checked for the key, the region and the service only: the signature is the client's business.
SIGNED = re.compile(rf"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/\d{{8}}/[a-z0-9-]+/bedrock/aws4_request, ")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MODEL_PATH = re.compile(r"/model/([^/]+)/(converse|converse-stream)")
# Bytes of one write; a prime, so that cuts fall on all places of a frame.
PIECE_BYTES = 61
STOPS = {"tool_use": "tool_use", "end_turn": "end_turn", "max_tokens": "max_tokens", "stop_sequence": "stop_sequence"}


class Refused(Exception):
    """What Converse answers with a ValidationException."""


def require(condition, why):
    if not condition:
        raise Refused(why)


def only(value, members, what):
    require(isinstance(value, dict), f"{what} is no object")
    require(not set(value) - members, f"{what} has unknown members: {sorted(set(value) - members)}")


def the_one(block, what):
    """Kind and value of a union, which has exactly one member."""
    require(isinstance(block, dict) and len(block) == 1, f"{what} has {len(block)} members instead of one")
    return next(iter(block.items()))


def text_of(value, what):
    require(isinstance(value, str) and value.strip(), f"The text field in the {what} is blank.")
    return {"type": "text", "text": value}


# From Converse to Messages.

def block_of(block, role):
    kind, value = the_one(block, "ContentBlock")
    if kind == "text":
        return text_of(value, "ContentBlock object")
    if kind == "toolUse":
        require(role == "assistant", "toolUse blocks can only be in messages of the assistant.")
        only(value, {"toolUseId", "name", "input"}, "toolUse")
        require(all(NAME.fullmatch(value[member]) for member in ("toolUseId", "name")), f"toolUse has a wrong id or name: {value}")
        require(isinstance(value["input"], dict), "toolUse.input is no object")
        return {"type": "tool_use", "id": value["toolUseId"], "name": value["name"], "input": value["input"]}
    if kind == "toolResult":
        require(role == "user", "toolResult blocks can only be in messages of the user.")
        only(value, {"toolUseId", "content", "status"}, "toolResult")
        require(value.get("status", "success") in ("success", "error"), "toolResult.status is unknown")
        content = [result_of(one) for one in value["content"]]
        return {"type": "tool_result", "tool_use_id": value["toolUseId"], "content": content,
                "is_error": value.get("status") == "error"}
    require(kind == "reasoningContent" and role == "assistant", f"ContentBlock {kind} is not taken from the {role}")
    kind, value = the_one(value, "reasoningContent")
    if kind == "redactedContent":
        return {"type": "redacted_thinking", "data": base64.b64decode(value).decode()}
    only(value, {"text", "signature"}, kind)
    return {"type": "thinking", "thinking": value["text"], "signature": value["signature"]}


def result_of(block):
    kind, value = the_one(block, "ToolResultContentBlock")
    if kind == "json":
        return {"type": "text", "text": json.dumps(value)}
    require(kind == "text", f"ToolResultContentBlock {kind} is not taken")
    return text_of(value, "ToolResultContentBlock object")


def system_of(block):
    kind, value = the_one(block, "SystemContentBlock")
    require(kind == "text", f"SystemContentBlock {kind} is not taken")
    return text_of(value, "SystemContentBlock object")


def messages_of(messages):
    """The messages, once roles and calls are in order."""
    out, waiting = [], []
    require(messages, "A conversation must start with a user message.")
    for number, message in enumerate(messages):
        only(message, {"role", "content"}, "Message")
        role = message["role"]
        require(role == ("user", "assistant")[number % 2],
                "A conversation must start with a user message." if number == 0 else
                "A conversation must alternate between user and assistant roles.")
        require(message["content"], "The content field in the Message object is empty.")
        blocks = [block_of(block, role) for block in message["content"]]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        require(len(answered) == len(waiting) and set(answered) == set(waiting),
                f"Expected toolResult blocks at messages.{number}.content for the following Ids: {', '.join(waiting)}; came: {', '.join(answered)}")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        require(len(set(waiting)) == len(waiting), "The toolUse blocks contain duplicate Ids.")
        out.append({"role": role, "content": blocks})
    require(out[-1]["role"] == "user", "The last message must be one of the user.")
    return out


def tool_of(tool):
    kind, value = the_one(tool, "Tool")
    require(kind == "toolSpec", f"Tool {kind} is not taken")
    only(value, {"name", "description", "inputSchema"}, "toolSpec")
    require(NAME.fullmatch(value["name"]), f"toolSpec.name is wrong: {value['name']}")
    require(value.get("description", "x"), "toolSpec.description is empty")
    kind, schema = the_one(value["inputSchema"], "inputSchema")
    require(kind == "json" and schema.get("type") == "object", f"The schema of {value['name']} is not one of an object")
    described = {"description": value["description"]} if "description" in value else {}
    return {"name": value["name"], **described, "input_schema": schema}


def choice_of(choice):
    kind, value = the_one(choice, "toolChoice")
    require(kind in ("auto", "any", "tool"), f"toolChoice {kind} is unknown")
    return {"type": kind, **value}


def request_of(model, body):
    """A request of Converse as one of Messages."""
    only(body, {"messages", "system", "inferenceConfig", "toolConfig", "additionalModelRequestFields"}, "ConverseRequest")
    messages = messages_of(body["messages"])
    limits, tools = body.get("inferenceConfig", {}), body.get("toolConfig")
    only(limits, {"maxTokens", "temperature", "topP", "stopSequences"}, "inferenceConfig")
    with_calls = any(block["type"].startswith("tool_") for message in messages for block in message["content"])
    require(tools or not with_calls, "The toolConfig field must be defined when using toolUse and toolResult content blocks.")
    names = {"maxTokens": "max_tokens", "temperature": "temperature", "topP": "top_p", "stopSequences": "stop_sequences"}
    sent = {"model": model, "messages": messages, "max_tokens": 4096, **{names[name]: value for name, value in limits.items()},
            **body.get("additionalModelRequestFields", {})}
    if body.get("system"):
        sent["system"] = [system_of(block) for block in body["system"]]
    if tools:
        only(tools, {"tools", "toolChoice"}, "toolConfig")
        require(tools["tools"], "toolConfig.tools is empty")
        sent["tools"] = [tool_of(tool) for tool in tools["tools"]]
        if "toolChoice" in tools:
            sent["tool_choice"] = choice_of(tools["toolChoice"])
    return sent


# From Messages to Converse.

def converse_block(block):
    if block["type"] == "text":
        return {"text": block["text"]}
    if block["type"] == "tool_use":
        return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
    if block["type"] == "redacted_thinking":
        return {"reasoningContent": {"redactedContent": base64.b64encode(block["data"].encode()).decode()}}
    return {"reasoningContent": {"reasoningText": {"text": block["thinking"], "signature": block["signature"]}}}


def answer_of(answer):
    used = answer["usage"]
    return {
        "output": {"message": {"role": "assistant", "content": [converse_block(block) for block in answer["content"]]}},
        "stopReason": STOPS[answer["stop_reason"]],
        "usage": {"inputTokens": used["input_tokens"], "outputTokens": used["output_tokens"],
                  "totalTokens": used["input_tokens"] + used["output_tokens"]},
        "metrics": {"latencyMs": 1},
    }


def halves(text):
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


def events_of(answer):
    """The events of ConverseStream for an answer of Converse. Only a call's block begins with an event of its own."""
    yield "messageStart", {"role": "assistant"}
    for index, block in enumerate(answer["output"]["message"]["content"]):
        kind, value = the_one(block, "ContentBlock")
        deltas = [{"text": part} for part in halves(value)] if kind == "text" else []
        if kind == "toolUse":
            yield "contentBlockStart", {"start": {"toolUse": {"toolUseId": value["toolUseId"], "name": value["name"]}}, "contentBlockIndex": index}
            deltas = [{"toolUse": {"input": part}} for part in halves(json.dumps(value["input"]))]
        elif kind == "reasoningContent" and "reasoningText" in value:
            reasoning = value["reasoningText"]
            deltas = [{"reasoningContent": {"text": part}} for part in halves(reasoning["text"])]
            deltas.append({"reasoningContent": {"signature": reasoning["signature"]}})
        elif kind == "reasoningContent":
            deltas = [{"reasoningContent": value}]
        for delta in deltas:
            yield "contentBlockDelta", {"delta": delta, "contentBlockIndex": index}
        yield "contentBlockStop", {"contentBlockIndex": index}
    yield "messageStop", {"stopReason": answer["stopReason"]}
    yield "metadata", {"usage": answer["usage"], "metrics": answer["metrics"]}


def frame(kind, payload):
    """One message of AWS's event stream: lengths, their CRC, headers of strings (type 7), payload, CRC of all before."""
    headers = b""
    for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        headers += struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack(">I", zlib.crc32(message))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            answer, streams = self.answer(body)
        except Refused as why:
            self.server.refusals.append(str(why))
            return self.whole(400, {"message": str(why)}, ("x-amzn-errortype", "ValidationException"))
        if not streams:
            return self.whole(200, answer)
        self.send_response(200)
        self.send_header("content-type", "application/vnd.amazon.eventstream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        sent = b"".join(frame(kind, payload) for kind, payload in events_of(answer))
        for at in range(0, len(sent), PIECE_BYTES):
            piece = sent[at:at + PIECE_BYTES]
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def whole(self, status, value, *headers):
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in (("content-type", "application/json"), ("content-length", str(len(data))), *headers):
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def answer(self, body):
        """The answer of Converse, and whether it is to be a stream."""
        require(SIGNED.match(self.headers.get("authorization", "")), "The request is not signed for bedrock with the test's key.")
        path = MODEL_PATH.fullmatch(self.path)
        require(path, f"There is no {self.path}.")
        try:
            asked = request_of(urllib.parse.unquote(path[1]), json.loads(body))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Refused(f"The request has not the form of Converse: {error!r}") from error
        self.server.requests.append(json.loads(body))
        host, key = self.server.model
        connection = http.client.HTTPConnection(host, timeout=300)
        connection.request("POST", "/v1/messages", json.dumps(asked),
                           {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": key})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        require(response.status == 200, f"The model refuses: {answer}")
        return answer_of(answer), path[2] == "converse-stream"


@contextlib.contextmanager
def converse(model, key):
    """Serves Converse for the scripted model at this base URL; gives the server, with `url`, `requests` and `refusals`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.model = (urllib.parse.urlsplit(model).netloc, key)
    server.requests, server.refusals = [], []
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
