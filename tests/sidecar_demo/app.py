"""An application that knows nothing of Knack: it asks a model again and again by an official SDK, and prints what came.

    app.py openai|responses|anthropic|google [once]
"""

import json
import sys
import time

KIND, ONCE = sys.argv[1], "once" in sys.argv[2:]


def asker():
    """A function from words to the model's text."""
    if KIND == "openai":
        import openai
        client = openai.OpenAI(max_retries=0)

        def ask(words):
            answer = client.chat.completions.create(model="knack-demo", messages=[{"role": "user", "content": words}])
            return answer.choices[0].message.content
    elif KIND == "responses":
        import openai
        client = openai.OpenAI(max_retries=0)

        def ask(words):
            return client.responses.create(model="knack-demo", input=words).output_text
    elif KIND == "google":
        from google import genai
        client = genai.Client()

        def ask(words):
            return client.models.generate_content(model="knack-demo", contents=words).text
    else:
        import anthropic
        client = anthropic.Anthropic(max_retries=0)

        def ask(words):
            answer = client.messages.create(model="knack-demo", max_tokens=1000, messages=[{"role": "user", "content": words}])
            return "".join(block.text for block in answer.content if block.type == "text")
    return ask


def told(ask, words):
    """Asks and prints one line; the text, or None for an error."""
    try:
        text = ask(words)
        print(json.dumps({"at": time.time(), "text": text}), flush=True)
        return text
    except Exception as error:  # Whatever the SDK raises is what its user would see.
        print(json.dumps({"at": time.time(), "error": "%s: %s" % (type(error).__name__, error)}), flush=True)
        return None


def main():
    ask = asker()
    added = False
    while True:
        text = told(ask, "which edition")
        if ONCE and text:
            return
        if not added and text and text.startswith("edition"):
            added = told(ask, "please add") == "The sum is 42."
        time.sleep(0.02)


main()
