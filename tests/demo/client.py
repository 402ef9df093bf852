"""A client of both APIs with the standard library only: requests, streams, and the raw bytes beside them."""

import http.client
import json
import time


class Answer:
    """One answer: the assistant's message as a client keeps it, its text, and everything that came, as bytes."""

    def __init__(self):
        self.id = ""
        self.message = None
        self.text = ""
        self.calls = []
        self.raw = b""
        self.headers = {}
        self.seconds = 0.0
        self.first_byte = 0.0
        self.events = 0


class Client:
    """Talks to one gateway. `api` is "chat" or "messages"."""

    def __init__(self, port, api, key, model):
        self.port = port
        self.api = api
        self.model = model
        if api == "chat":
            self.path = "/v1/chat/completions"
            self.headers = {"authorization": "Bearer " + key}
        else:
            self.path = "/v1/messages"
            self.headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def ask(self, messages, stream):
        """Sends the conversation; an answer that is no 200 is an AssertionError with its body."""
        body = {"model": self.model, "messages": messages}
        if self.api == "chat":
            body["max_completion_tokens"] = 8000
            if stream:
                body["stream_options"] = {"include_usage": True}
        else:
            body["max_tokens"] = 8000
        if stream:
            body["stream"] = True
        answer, begun = Answer(), time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", self.path, json.dumps(body), dict(self.headers, **{"content-type": "application/json"}))
        response = connection.getresponse()
        answer.headers = {name.lower(): value for name, value in response.getheaders()}
        answer.raw = response.read(1)
        answer.first_byte = time.monotonic() - begun
        answer.raw += response.read()
        answer.seconds = time.monotonic() - begun
        connection.close()
        if response.status != 200:
            raise AssertionError("%s answered %d: %s" % (self.path, response.status, answer.raw.decode("utf-8", "replace")))
        if stream:
            (self._chat_stream if self.api == "chat" else self._messages_stream)(answer)
        else:
            (self._chat_body if self.api == "chat" else self._messages_body)(answer, json.loads(answer.raw))
        return answer

    def get(self, path):
        """GET with the same credential: (status, bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers=self.headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content

    def _chat_body(self, answer, body):
        answer.id = body["id"]
        message = body["choices"][0]["message"]
        answer.text = message.get("content") or ""
        answer.calls = message.get("tool_calls") or []
        answer.message = {"role": "assistant", "content": answer.text}

    def _messages_body(self, answer, body):
        answer.id = body["id"]
        answer.text = "".join(block.get("text", "") for block in body["content"] if block["type"] == "text")
        answer.calls = [block for block in body["content"] if block["type"] == "tool_use"]
        answer.message = {"role": "assistant", "content": body["content"]}

    def _chat_stream(self, answer):
        ids, ended = set(), False
        for _, data in events(answer.raw):
            answer.events += 1
            if data == "[DONE]":
                ended = True
                continue
            chunk = json.loads(data)
            assert "error" not in chunk, "the stream ended in an error: " + data
            ids.add(chunk["id"])
            for choice in chunk["choices"]:
                answer.text += choice["delta"].get("content") or ""
                answer.calls += choice["delta"].get("tool_calls") or []
        assert ended, "the stream has no [DONE]"
        assert len(ids) == 1, "one answer, but the ids %s" % ids
        answer.id = ids.pop()
        answer.message = {"role": "assistant", "content": answer.text}

    def _messages_stream(self, answer):
        blocks, ended = [], False
        for name, data in events(answer.raw):
            answer.events += 1
            event = json.loads(data)
            assert event["type"] != "error", "the stream ended in an error: " + data
            if event["type"] == "message_start":
                assert not answer.id, "a second message_start"
                answer.id = event["message"]["id"]
            elif event["type"] == "content_block_start":
                assert event["index"] == len(blocks), "block %d came at place %d" % (event["index"], len(blocks))
                blocks.append(dict(event["content_block"]))
            elif event["type"] == "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                for member in ("text", "thinking", "signature"):
                    if member in delta:
                        block[member] = block.get(member, "") + delta[member]
            elif event["type"] == "message_stop":
                ended = True
        assert ended, "the stream has no message_stop"
        answer.text = "".join(block.get("text", "") for block in blocks if block["type"] == "text")
        answer.calls = [block for block in blocks if block["type"] == "tool_use"]
        answer.message = {"role": "assistant", "content": blocks}


def events(raw):
    """(name, data) of every server-sent event."""
    for frame in raw.decode("utf-8").replace("\r\n", "\n").split("\n\n"):
        name, data = "", []
        for line in frame.split("\n"):
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].lstrip())
        if data:
            yield name, "\n".join(data)
