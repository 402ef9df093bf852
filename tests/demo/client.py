"""A client of all four APIs with the standard library only: requests, streams, and the raw bytes beside them."""

import base64
import http.client
import json
import time


class Answer:
    """One answer: what a client keeps of it in the conversation, its text, everything that came, as bytes,
    and what the gateway's console said of it."""

    def __init__(self):
        self.id = ""
        self.path = ""
        self.console = ""
        self.messages = []
        self.text = ""
        self.calls = []
        self.raw = b""
        self.headers = {}
        self.seconds = 0.0
        self.first_byte = 0.0
        self.events = 0


class Client:
    """Talks to one gateway. `api` is "chat", "messages", "responses" or "gemini"."""

    def __init__(self, port, api, key, model):
        self.port = port
        self.api = api
        self.model = model
        self.path = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}.get(api)
        if api == "messages":
            self.headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
        elif api == "gemini":
            self.headers = {"x-goog-api-key": key}
        else:
            self.headers = {"authorization": "Bearer " + key}

    def user(self, words, file=None):
        """A message of the user, with a text file (name, content) before the words."""
        if self.api == "gemini":
            parts = [{"text": words}]
            if file:
                # The API has no member for the name of inline data, so the words carry it.
                inline = {"mimeType": "text/csv", "data": base64.b64encode(file[1].encode()).decode()}
                parts.insert(0, {"inlineData": inline})
            return {"role": "user", "parts": parts}
        if not file:
            return {"role": "user", "content": words}
        name, content = file
        data = "data:text/csv;base64," + base64.b64encode(content.encode()).decode()
        text = {"type": "input_text" if self.api == "responses" else "text", "text": words}
        attached = {
            "chat": {"type": "file", "file": {"filename": name, "file_data": data}},
            "responses": {"type": "input_file", "filename": name, "file_data": data},
            "messages": {"type": "document", "title": name,
                         "source": {"type": "text", "media_type": "text/plain", "data": content}},
        }[self.api]
        return {"role": "user", "content": [attached, text]}

    def _request(self, messages, stream):
        """Path and body of one request."""
        if self.api == "gemini":
            method = "streamGenerateContent?alt=sse" if stream else "generateContent"
            body = {"contents": messages, "generationConfig": {"maxOutputTokens": 8000}}
            return "/v1beta/models/%s:%s" % (self.model, method), body
        if self.api == "responses":
            # The conversation is the client's: the provider stores nothing, and seals what it thought.
            body = {"model": self.model, "input": messages, "store": False, "max_output_tokens": 8000,
                    "include": ["reasoning.encrypted_content"]}
        elif self.api == "chat":
            body = {"model": self.model, "messages": messages, "max_completion_tokens": 8000}
            if stream:
                body["stream_options"] = {"include_usage": True}
        else:
            body = {"model": self.model, "messages": messages, "max_tokens": 8000}
        if stream:
            body["stream"] = True
        return self.path, body

    def ask(self, messages, stream):
        """Sends the conversation; an answer that is no 200 is an AssertionError with its body."""
        path, body = self._request(messages, stream)
        answer, begun = Answer(), time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", path, json.dumps(body), dict(self.headers, **{"content-type": "application/json"}))
        response = connection.getresponse()
        answer.headers = {name.lower(): value for name, value in response.getheaders()}
        answer.raw = response.read(1)
        answer.first_byte = time.monotonic() - begun
        answer.raw += response.read()
        answer.seconds = time.monotonic() - begun
        connection.close()
        if response.status != 200:
            raise AssertionError("%s answered %d: %s" % (path, response.status, answer.raw.decode("utf-8", "replace")))
        answer.path = path
        if stream:
            getattr(self, "_%s_stream" % self.api)(answer)
        else:
            getattr(self, "_%s_body" % self.api)(answer, json.loads(answer.raw))
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
        answer.messages = [{"role": "assistant", "content": answer.text}]

    def _messages_body(self, answer, body):
        answer.id = body["id"]
        answer.text = "".join(block.get("text", "") for block in body["content"] if block["type"] == "text")
        answer.calls = [block for block in body["content"] if block["type"] == "tool_use"]
        answer.messages = [{"role": "assistant", "content": body["content"]}]

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
        answer.messages = [{"role": "assistant", "content": answer.text}]

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
        answer.messages = [{"role": "assistant", "content": blocks}]

    def _responses_body(self, answer, body):
        answer.id = body["id"]
        parts = [part for item in body["output"] for part in item.get("content") or []]
        answer.text = "".join(part.get("text", "") for part in parts)
        answer.calls = [item for item in body["output"] if item["type"].endswith("_call")]
        answer.messages = body["output"]

    def _responses_stream(self, answer):
        last, text = None, ""
        for number, (name, data) in enumerate(events(answer.raw)):
            answer.events += 1
            last = json.loads(data)
            assert last["type"] == name != "error", "the stream ended in an error: " + data
            assert last["sequence_number"] == number, "event %d has the number %d" % (number, last["sequence_number"])
            if name == "response.output_text.delta":
                text += last["delta"]
        assert last and last["type"] == "response.completed", "the stream has no response.completed"
        self._responses_body(answer, last["response"])
        assert text == answer.text, "the deltas say %r, the end says %r" % (text, answer.text)

    def _gemini_body(self, answer, body):
        self._gemini_frames(answer, [body])

    def _gemini_stream(self, answer):
        frames = [json.loads(data) for _, data in events(answer.raw)]
        answer.events = len(frames)
        self._gemini_frames(answer, frames)

    def _gemini_frames(self, answer, frames):
        parts = []
        for frame in frames:
            assert "error" not in frame, "the stream ended in an error: %r" % frame
            parts += frame["candidates"][0].get("content", {}).get("parts", [])
        assert frames[-1]["candidates"][0].get("finishReason") == "STOP", "the answer has no end: %r" % frames[-1]
        ids = {frame["responseId"] for frame in frames}
        assert len(ids) == 1, "one answer, but the ids %s" % ids
        answer.id = ids.pop()
        answer.text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        answer.calls = [part for part in parts if "functionCall" in part]
        answer.messages = [{"role": "model", "parts": parts}]


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
